"""The fixture that refuses connections does refuse them, and lets a marked test through."""

from __future__ import annotations

import socket

import pytest


@pytest.mark.parametrize("address", [("127.0.0.1", 9), ("192.0.2.1", 443)])
def test_connections_are_refused(address: tuple[str, int]) -> None:
    with socket.socket() as client, pytest.raises(AssertionError, match="must not connect"):
        client.connect(address)


def test_names_are_not_looked_up() -> None:
    with pytest.raises(AssertionError, match="must not look up"):
        socket.create_connection(("localhost", 9))


@pytest.mark.loopback
def test_a_marked_test_reaches_this_machine_and_no_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            pass
        with socket.socket() as client, pytest.raises(AssertionError, match="must not connect"):
            client.connect(("192.0.2.1", 443))
