"""Host names and origins, in requests and in options."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from maskwright.base.errors import UsageError

ANY = "*"


def host_name(value: bytes) -> str | None:
    """Return the name in a Host header without the port; None if it is invalid."""
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


def as_host(address: str) -> str:
    """Normalise a host name as in Host headers: lower case, IPv6 addresses in brackets.

    Raises:
        UsageError: it is not a valid host name.
    """
    try:
        name = f"[{ipaddress.IPv6Address(address.strip('[]'))}]"
    except ValueError:
        name = address.lower()
    if name == ANY or (name.isascii() and host_name(name.encode()) == name):
        return name
    raise UsageError(
        "no name that a request could give",
        where="--allowed-host",
        found=address,
        wanted="a name or an address without scheme and port, such as models.example.org; or *",
    )


def as_origin(address: str) -> str:
    """Normalise an origin as browsers send it: lower case, without path and default port.

    Raises:
        UsageError: it is not a valid origin.
    """
    url = urlsplit(address.lower())
    origin = f"{url.scheme}://{url.netloc}"
    is_valid = url.scheme in ("http", "https") and host_name(url.netloc.encode()) is not None
    if is_valid and origin.isascii() and address.lower() in (origin, f"{origin}/"):
        default_port = {"http": ":80", "https": ":443"}[url.scheme]
        return origin.removesuffix(default_port)
    raise UsageError(
        "no site that a browser could name",
        where="--allowed-origin",
        found=address,
        wanted="scheme and name, such as https://example.org",
    )


def listening(address: str) -> str:
    """Normalise the address to listen on: lower case, IPv6 without brackets.

    Raises:
        UsageError: the address is empty or has a NUL character.
    """
    host = address.removeprefix("[").removesuffix("]") if ":" in address else address.lower()
    if not host or "\0" in host:
        raise UsageError(
            "no address to listen at",
            where="--host",
            found=repr(address),
            wanted="127.0.0.1, or 0.0.0.0 for all of this machine",
        )
    return host


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
