"""`maskwright serve`: names, models, limits and policy put together.

serve(["runs/reviews"], port=8000)                          until a signal
with serve(["runs/reviews"], port=0, background=True) as s:  on a thread: s.url
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, get_args

from maskwright.base.errors import UsageError
from maskwright.base.packages import require
from maskwright.model.device.choices import Precision
from maskwright.model.graph.engines.base.names import TORCH
from maskwright.model.graph.engines.base.names import require as require_engine
from maskwright.ship.serve.addresses import ANY, as_host, as_origin, is_loopback, listening
from maskwright.ship.serve.limits import Limits

if TYPE_CHECKING:
    from maskwright.ship.serve.app import Application
    from maskwright.ship.serve.process import BackgroundServer


def serve(
    models: Sequence[Path | str] | Path | str = (),
    *,
    names: Mapping[str, Path | str] | None = None,
    adapters: Mapping[str, Path | str] | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    insecure: bool = False,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    limits: Limits | None = None,
    precision: Precision = "auto",
    engine: str = TORCH,
    background: bool = False,
    log: TextIO | None = None,
    say: Callable[[str], None] | None = None,
) -> BackgroundServer | None:
    """Serve models over HTTP until a signal comes, or on a thread.

    Args:
        models: folders; each is called what its folder is called.
        names: folders by the names that requests give.
        adapters: folders of adapters and heads on these models, by name.
        host, port: where it listens; port 0 takes any that is free.
        token: that every request carries; None: none, which only this machine may do without.
        insecure: go without a token on an address that others reach.
        allowed_hosts: names that requests may call this server, besides this machine's own.
        allowed_origins: pages of other sites that may ask, such as https://example.org.
        limits: what is taken at most.
        precision: what is computed in.
        engine: what reads texts, as of `maskwright.load`.
        background: answer on a thread, and return at once; `wait()` until it is ready.
        log: takes a line of JSON for each request; None: nothing.
        say: takes what a person is told.

    Returns:
        The running server, with `background`.

    Raises:
        UsageError: no model, two of one name, a port in use, an open address without a token, or
            a package is not installed.
        IncompatibleError: an adapter without its model.
        ResourceError: the models do not fit into memory.
        And as `maskwright.load`.
    """
    require("serving", "fastapi", "h11", "uvicorn")
    from maskwright.ship.serve.app import Application
    from maskwright.ship.serve.gate import AccessPolicy, Gate
    from maskwright.ship.serve.host import Host
    from maskwright.ship.serve.metrics import RequestLog
    from maskwright.ship.serve.process import BackgroundServer, DrainingServer, bind_socket, run
    from maskwright.ship.serve.served_model import folders_by_name, open_all

    say = say or (lambda line: None)
    if precision not in get_args(Precision):
        raise UsageError(
            "no such precision", found=repr(precision), wanted=", ".join(get_args(Precision))
        )
    require_engine(engine)
    folders = folders_by_name([models] if isinstance(models, Path | str) else list(models))
    for name, folder in (names or {}).items():
        if name in folders:
            raise UsageError("two models of one name", where="--name", found=name)
        folders[name] = Path(folder)
    adapter_folders = {name: Path(folder) for name, folder in (adapters or {}).items()}
    if conflicts := sorted(folders.keys() & adapter_folders.keys()):
        raise UsageError(
            "a model and an adapter of one name", where="--adapter", found=conflicts[0]
        )
    if not folders:
        raise UsageError("no model to serve", do="maskwright serve MODEL")
    host, limits = listening(host), limits or Limits()
    hosts, origins = map(as_host, allowed_hosts), tuple(map(as_origin, allowed_origins))
    sock = bind_socket(host, port)
    try:
        model_host = Host({}, limits, precision=precision, engine=engine)
        application = Application(model_host)
        for name in (*folders, *adapter_folders):
            _require_name(name, application)
        token = choose_token(host, token, insecure, say)
        default_host = ANY if token is not None and not is_loopback(host) else as_host(host)
        policy = AccessPolicy(token=token, hosts=tuple(hosts) or (default_host,), origins=origins)
        gate = Gate(application, policy, RequestLog(log))
        server = DrainingServer(gate, model_host, sock)
    except BaseException:
        sock.close()
        raise

    def load() -> None:
        model_host.load(open_all(folders, adapter_folders, precision, note_to(say), engine))

    if background:
        return BackgroundServer(server, load)
    address, bound_port = sock.getsockname()[:2]
    url = f"http://{f'[{address}]' if ':' in address else address}:{bound_port}"
    say(f"loading {', '.join(folders)}; {url}/health answers, {url}/ready when it is done")

    def ready() -> None:
        for name in model_host.names:
            model = model_host.model(name)
            say(f"{name}: {model.opened.describe()}; answers {', '.join(model.abilities)}")
        say(f"ready: {url} (routes: {url}/docs)")

    run(server, load, ready)
    say("stopped; every request that was taken in has been answered")
    return None


def _require_name(name: str, application: Application) -> None:
    """Refuse a name that requests could not give.

    Raises:
        UsageError: it has a character that a path divides at, or that is none; or paths that begin
            with it are the server's own.
    """
    hidden = application.hidden(name)
    sound = name.isprintable() and name == name.strip() and name not in ("", ".", "..")
    if sound and "/" not in name and hidden is None:
        return
    raise UsageError(
        "a name that requests cannot give",
        where="the name of a model",
        found=repr(name) if hidden is None else f"{name!r}; {hidden} is something else here",
        wanted="visible characters, no / among them, no space at either end",
        do="call it something else: --name NAME=FOLDER",
    )


def note_to(say: Callable[[str], None]) -> Callable[[object], None]:
    """What takes findings of opened folders."""
    return lambda finding: say(str(finding))


def choose_token(
    host: str, token: str | None, insecure: bool, say: Callable[[str], None]
) -> str | None:
    """The token that requests carry: the given one; else a new one where others reach the
    address.

    Raises:
        UsageError: it is too short to be one.
    """
    if token is not None:
        if len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError(
                "no good token",
                where="--token",
                found=f"{len(token)} characters",
                wanted="8 or more visible ASCII characters",
            )
        return token
    if is_loopback(host) or insecure:
        return None
    new_token = secrets.token_urlsafe(24)
    say(f"token (new, since others reach {host}): {new_token}")
    return new_token


def printer() -> Callable[[str], None]:
    """Lines for a person, on standard error."""
    return lambda line: print(line, file=sys.stderr, flush=True)
