"""`maskwright serve`: the server with its models, limits and access policy.

serve(["runs/reviews"], port=8000)                          until a signal
with serve(["runs/reviews"], port=0, background=True) as s:  on a thread: s.url
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, get_args

from maskwright.base.catalogue import require_packages
from maskwright.base.errors import UsageError
from maskwright.model.device.choices import TORCH, Precision, require_engine
from maskwright.ship.serve.access import (
    ANY,
    AccessPolicy,
    as_host,
    as_origin,
    choose_token,
    is_loopback,
    listening,
)
from maskwright.ship.serve.errors import Limits

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
    unix_socket: Path | str | None = None,
    token: str | None = None,
    keys: Path | str | None = None,
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
        models: folders, which are served under their own names.
        names: folders by their names in requests.
        adapters: folders of adapters and heads on these models, by name.
        host, port: to listen on; port 0 for any free port.
        unix_socket: the path of a Unix socket to listen on, in place of host and port.
        token: required in every request; None: none on the loopback address, on a Unix socket and
            with `keys`, else a new one.
        keys: a file with keys of callers and their limits, as of `ship.serve.callers`.
        insecure: require no token on an address that other machines reach.
        allowed_hosts: host names of this server besides those of this machine.
        allowed_origins: other sites whose pages may send requests, such as https://example.org.
        limits: of requests and queues.
        precision: of the computation.
        engine: as of `maskwright.load`.
        background: serve on a thread and return at once; `wait()` returns when it is ready.
        log: receives a line of JSON for each request; None: no log.
        say: receives messages for the user.

    Returns:
        The running server, with `background`.

    Raises:
        UsageError: no model, two models of one name, a port in use, or a package is not installed.
        IncompatibleError: an adapter without its model.
        ResourceError: the models do not fit into memory.
        And as `maskwright.load`.
    """
    require_packages("serving", "fastapi", "h11", "uvicorn")
    from maskwright.model.device.machine import use_threads
    from maskwright.ship.serve.app import Application
    from maskwright.ship.serve.callers import KeyFile
    from maskwright.ship.serve.gate import Gate
    from maskwright.ship.serve.host import Host
    from maskwright.ship.serve.metrics import RequestLog
    from maskwright.ship.serve.process import (
        BackgroundServer,
        DrainingServer,
        bind_socket,
        bind_unix_socket,
        url_of,
    )
    from maskwright.ship.serve.served_model import folders_by_name, open_all

    say = say or (lambda line: None)
    if precision not in get_args(Precision):
        raise UsageError(
            "no such precision", found=repr(precision), wanted=", ".join(get_args(Precision))
        )
    require_engine(engine)
    listed = [models] if isinstance(models, Path | str) else list(models)
    folders = folders_by_name(listed, names or {})
    adapter_folders = {name: Path(folder) for name, folder in (adapters or {}).items()}
    if conflicts := sorted(folders.keys() & adapter_folders.keys()):
        raise UsageError(
            "a model and an adapter of one name", where="--adapter", found=conflicts[0]
        )
    if not folders:
        raise UsageError("no model to serve", do="maskwright serve MODEL")
    host, limits = listening(host), limits or Limits()
    hosts, origins = map(as_host, allowed_hosts), tuple(map(as_origin, allowed_origins))
    key_file = None if keys is None else KeyFile(Path(keys))
    sock = bind_socket(host, port) if unix_socket is None else bind_unix_socket(Path(unix_socket))
    try:
        model_host = Host(limits, precision=precision, engine=engine)
        application = Application(model_host)
        for name in (*folders, *adapter_folders):
            _require_name(name, application)
        is_local = is_loopback(host) or unix_socket is not None
        token = choose_token(token, is_local or insecure or key_file is not None, host, say)
        is_named = is_local or (token is None and key_file is None)
        default_host = as_host(host) if is_named and unix_socket is None else ANY
        policy = AccessPolicy(
            token=token, keys=key_file, hosts=tuple(hosts) or (default_host,), origins=origins
        )
        gate = Gate(application, policy, RequestLog(log))
        server = DrainingServer(gate, model_host, sock, say)
    except BaseException:
        sock.close()
        raise

    def load() -> None:
        model_host.load(
            open_all(folders, adapter_folders, precision, lambda finding: say(str(finding)), engine)
        )

    if background:
        return BackgroundServer(server, load)
    url = url_of(sock)
    say(f"loading {', '.join(folders)}; {url}/health answers, {url}/ready when it is done")

    def ready() -> None:
        for name in model_host.names:
            engine = model_host.model(name).engine()
            say(f"{name}: {engine.describe()}; answers {', '.join(engine.abilities)}")
        if finding := use_threads():
            say(str(finding))
        say(f"ready: {url} (routes: {url}/docs)")

    asyncio.run(server.run_until_stopped(load, ready))
    say("stopped; every request that was taken in has been answered")
    return None


def _require_name(name: str, application: Application) -> None:
    conflict = application.hidden(name)
    sound = name.isprintable() and name == name.strip() and name not in ("", ".", "..")
    if sound and "/" not in name and conflict is None:
        return
    raise UsageError(
        "a name that requests cannot give",
        where="the name of a model",
        found=repr(name) if conflict is None else f"{name!r}; {conflict} is something else here",
        wanted="visible characters, no / among them, no space at either end",
        do="call it something else: --name NAME=FOLDER",
    )
