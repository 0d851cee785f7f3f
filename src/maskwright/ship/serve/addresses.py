"""Names of servers and of sites, as requests give them and as a person lists them."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from maskwright.base.errors import UsageError

ANY = "*"


def host_name(value: bytes) -> str | None:
    """The name of a Host header without its port; None where it is none."""
    text = value.decode("latin-1").lower()
    name, colon, port = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        name, port = text, ""
    if port and not (port.isascii() and port.isdigit()):
        return None
    if name.startswith("["):
        try:
            address = ipaddress.IPv6Address(name[1:-1])
        except ValueError:
            return None
        return f"[{address}]" if name.endswith("]") else None
    return name if name and all(c.isalnum() or c in "-._" for c in name) else None


def as_host(given: str) -> str:
    """A name of this server as Host headers have it; an address of IPv6 in brackets.

    Raises:
        UsageError: no such header could have it.
    """
    try:
        name = f"[{ipaddress.IPv6Address(given.strip('[]'))}]"
    except ValueError:
        name = given.lower()
    if name == ANY or (name.isascii() and host_name(name.encode()) == name):
        return name
    raise UsageError(
        "no name that a request could give",
        where="--allowed-host",
        found=given,
        wanted="a name or an address without scheme and port, such as models.example.org; or *",
    )


def as_origin(given: str) -> str:
    """A site as browsers name it: no path, small letters.

    Raises:
        UsageError: no browser names a site so.
    """
    parts = urlsplit(given.lower())
    own = f"{parts.scheme}://{parts.netloc}"
    sound = parts.scheme in ("http", "https") and host_name(parts.netloc.encode()) is not None
    if sound and own.isascii() and given.lower() in (own, f"{own}/"):
        usual = {"http": ":80", "https": ":443"}[parts.scheme]
        return own.removesuffix(usual)
    raise UsageError(
        "no site that a browser could name",
        where="--allowed-origin",
        found=given,
        wanted="scheme and name, such as https://example.org",
    )


def listening(given: str) -> str:
    """The address to listen at.

    Raises:
        UsageError: none is given.
    """
    host = given.removeprefix("[").removesuffix("]") if ":" in given else given.lower()
    if not host or "\0" in host:
        raise UsageError(
            "no address to listen at",
            where="--host",
            found=repr(given),
            wanted="127.0.0.1, or 0.0.0.0 for all of this machine",
        )
    return host


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
