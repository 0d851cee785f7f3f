"""Who may send requests: names of this server, pages of other sites, and the token.

Probes (`PROBES`) need neither a name nor a token, as in text-embeddings-inference.

Host    one of the server's names, else 421: a page may reach this machine by a name of its own
Origin  the server itself or an allowed site, else 403
token   or a key of the key file: `Authorization: Bearer TOKEN`, or as the password of a browser's
        prompt, else 401
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from maskwright.base.errors import UsageError
from maskwright.ship.serve.callers import Caller, KeyEntry, KeyFile, is_token
from maskwright.ship.serve.errors import Refusal

ANY = "*"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# Paths of orchestrators and of Prometheus, which name the address of a container and have no token.
PROBES = ("/health", "/ready", "/ping", "/metrics")
# Names of servers that listen on every address of the machine.
UNSPECIFIED = frozenset({"0.0.0.0", "[::]"})
# Response headers that a page of another site may read.
EXPOSED = b"x-request-id, x-model-id, x-windows, x-truncated, retry-after"
Headers = Mapping[bytes, list[bytes]]


@dataclass(frozen=True, kw_only=True)
class AccessPolicy:
    """The access rules of a server.

    Attributes:
        token: a token that requests may have, with the rights of an administrator.
        keys: further keys. Without token and keys, requests need none.
        hosts: allowed Host names besides those of the loopback interface; "*": any; "0.0.0.0" or
            "[::]": any address, which no page of another site can have as its name.
        origins: other sites whose pages may send requests.
    """

    token: str | None = None
    keys: KeyFile | None = None
    hosts: Collection[str] = ()
    origins: Collection[str] = ()

    def require_access(self, scope: Any, headers: Headers) -> Caller | None:
        """Raise a Refusal if the request is for another name, from another site, or without a
        token; return its caller if tokens are required."""
        method = scope["method"]
        is_probe = method in ("GET", "HEAD") and scope["path"] in PROBES
        if not is_probe:
            self._require_host(headers)
        self._require_origin(method, headers)
        is_preflight = method == "OPTIONS" and self.cors_headers(headers)
        is_open = self.token is None and self.keys is None
        return None if is_open or is_probe or is_preflight else self._require_token(headers)

    def _require_host(self, headers: Headers) -> None:
        values = headers.get(b"host", [])
        name = host_name(values[0]) if len(values) == 1 else None
        # A name that `host_name` accepts is an address if it has brackets, or no letters.
        is_address = name is not None and (name[0] == "[" or not name.strip("0123456789."))
        is_any = ANY in self.hosts or (is_address and not UNSPECIFIED.isdisjoint(self.hosts))
        if name is None or not (is_any or name in (*LOOPBACK, *self.hosts)):
            reason = "the server does not go by this name; name it with --allowed-host"
            raise Refusal("host", reason, field="Host")

    def _require_origin(self, method: str, headers: Headers) -> None:
        """Refuse requests from pages of other sites, unless the site is allowed."""
        origin = headers.get(b"origin")
        if origin is None:
            site = headers.get(b"sec-fetch-site", [b"none"])[0]
            if site in (b"cross-site", b"same-site") and method not in ("GET", "HEAD"):
                raise Refusal("forbidden", "asked by a page of another site", field="Origin")
            return
        origin_text = origin[0].decode("latin-1")
        server_host = headers.get(b"host", [b""])[0].decode("latin-1")
        is_same_origin = origin_text in (f"http://{server_host}", f"https://{server_host}")
        if len(origin) != 1 or not (is_same_origin or origin_text in self.origins):
            reason = "asked by a page of another site; list it with --allowed-origin"
            raise Refusal("forbidden", reason, field="Origin")

    def _require_token(self, headers: Headers) -> Caller:
        values = headers.get(b"authorization", [])
        request_token = _token(values[0]) if len(values) == 1 else None
        if request_token is not None:
            if self.token and hmac.compare_digest(request_token, self.token.encode()):
                return Caller("token", KeyEntry(key=self.token, admin=True))
            if self.keys is not None and (caller := self.keys.caller(request_token)) is not None:
                return caller
        raise Refusal("unauthorised", "a token is wanted: Authorization: Bearer TOKEN")

    def cors_headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return the CORS headers for a page of an allowed site; empty for other requests."""
        for origin in headers.get(b"origin", []):
            if origin.decode("latin-1") in self.origins:
                return [
                    (b"access-control-allow-origin", origin),
                    (b"access-control-expose-headers", EXPOSED),
                ]
        return []


def _token(header: bytes) -> bytes | None:
    """Return the bearer token, or the basic password, of an Authorization header; else None."""
    scheme, _, credentials = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return credentials.strip()
    if scheme.lower() != b"basic":
        return None
    try:
        return base64.b64decode(credentials.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return None


def choose_token(
    token: str | None, is_optional: bool, host: str, say: Callable[[str], None]
) -> str | None:
    """Return the token that requests must have: `token`, or a new one unless it `is_optional`;
    None: no token is required.

    Raises:
        UsageError: the token is too short or has invalid characters.
    """
    if token is not None:
        if not is_token(token):
            raise UsageError(
                "no good token",
                where="--token",
                found=f"{len(token)} characters",
                wanted="8 or more visible ASCII characters",
            )
        return token
    if is_optional:
        return None
    new_token = secrets.token_urlsafe(24)
    say(f"token (new, since others reach {host}): {new_token}")
    return new_token


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
