"""Models behind an API on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from maskwright.base.errors import UsageError
from maskwright.base.terminal import printer
from maskwright.cli.options import (
    add_device,
    add_engine,
    add_fields,
    given_options,
    lower_settings,
    require_existing,
)
from maskwright.model.device.choices import require_engine
from maskwright.ship.serve.errors import Limits

SUMMARY = "answer requests over HTTP with one model or several"
GROUP, ORDER = "labelled rows", 3
EXAMPLES = ("MODEL",)
USES = ("runs/reviews --port 8000", "runs/mine --name reviews=runs/reviews --engine onnxruntime")
OPTION_GROUP = "server"
# The prefix of environment variables with values of options, and another name of one.
PREFIX, TOKEN = "MASKWRIGHT_SERVE_", "MASKWRIGHT_TOKEN"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="*",
        type=Path,
        metavar="MODEL",
        exists="model",
        help="a run, a result or a model folder",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="a further model, by the name that requests give",
    )
    parser.add_argument(
        "--adapter",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="an adapter or a head on one of the models, which a request chooses by name",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a TOML file with values of these options; variables such as MASKWRIGHT_SERVE_PORT "
        "come before it, the command line before both",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="(default 8000; 0: any free one)")
    parser.add_argument(
        "--unix-socket",
        type=Path,
        metavar="PATH",
        help="listen on a Unix socket in place of host and port",
    )
    parser.add_argument(
        "--token",
        help=f"every request has to carry it (better: the variable {TOKEN}, which lists of "
        "processes do not show)",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="a JSON file with keys of callers and their limits, which may be replaced meanwhile",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="no token on an address that others reach"
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that requests may call this server (*: any)",
    )
    parser.add_argument(
        "--allowed-origin",
        action="append",
        default=[],
        metavar="URL",
        help="a site whose pages may ask, such as https://example.org",
    )
    add_device(parser, precision=True)
    add_engine(parser)
    parser.add_argument("--quiet", action="store_true", help="no line for each request")
    add_fields(parser, Limits)


def settings(parser: argparse.ArgumentParser, a: argparse.Namespace) -> dict[str, list[str] | None]:
    return lower_settings(parser, a.config, PREFIX, {"token": TOKEN})


def do(a: argparse.Namespace) -> None:
    names, adapters = _pairs(a.name, "--name"), _pairs(a.adapter, "--adapter")
    for model in names.values():
        require_existing(model, "model", a.command)
    for folder in adapters.values():
        require_existing(folder, "adapter")
    require_engine(a.engine, "--engine")
    limits = Limits(**given_options(a, Limits))
    from maskwright.ship.serve.command import serve

    arguments_passed = "host port unix_socket keys insecure precision engine"
    serve(
        a.models,
        names=names,
        adapters=adapters,
        token=a.token or None,
        allowed_hosts=a.allowed_host,
        allowed_origins=a.allowed_origin,
        limits=limits,
        log=None if a.quiet else sys.stdout,
        say=printer(sys.stderr),
        **{name: getattr(a, name) for name in arguments_passed.split()},
    )


def _pairs(words: list[str], option: str) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for word in words:
        name, sign, folder = word.partition("=")
        if not sign or not name or not folder:
            raise UsageError(
                "a name and a folder are wanted", where=option, found=word, wanted="NAME=FOLDER"
            )
        if name in folders:
            raise UsageError("the name is given twice", where=option, found=name)
        folders[name] = Path(folder)
    return folders
