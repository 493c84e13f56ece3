"""The address that a receiver listens on, or why it cannot be had."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from producers.server.bind import bind
from shared.errors import ConfigurationError


def test_port_0_is_a_free_one_that_takes_connections() -> None:
    with closing(bind("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        assert host == "127.0.0.1" and port > 0
        socket.create_connection((host, port), timeout=60).close()


def test_a_port_is_free_again_as_soon_as_its_receiver_has_ended() -> None:
    with closing(bind("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port), timeout=60)
        served, _ = listening.accept()
        served.close()  # we hang up first: the connection lingers on our side
        client.close()
    bind("127.0.0.1", port).close()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_number_that_is_no_port_is_said_to_be_none(port: int) -> None:
    with pytest.raises(ConfigurationError, match="a port is a number from 0 to 65535"):
        bind("127.0.0.1", port)


def test_the_last_port_is_one() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.2", 65_535))
        other.listen()
        with pytest.raises(ConfigurationError, match="in use"):
            bind("127.0.0.2", 65_535)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host.", "a" * 100])
def test_an_address_that_is_not_this_machines_is_said_so(host: str) -> None:
    with pytest.raises(ConfigurationError, match="not an address of this machine"):
        bind(host, 0)
