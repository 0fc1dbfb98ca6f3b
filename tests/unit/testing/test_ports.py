"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket

import pytest

from faust_assigner.testing import ports
from faust_assigner.testing.ports import free_port


def test_a_port_is_not_one_of_outgoing_connections() -> None:
    """Another process's connection cannot take the port before the server listens."""
    linux_from = 32_768
    assert all(1_024 <= free_port() < linux_from for _ in range(50))


def test_a_port_with_a_listener_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The free port of two is drawn; without a free port the error has the number of tries."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        other = free_port()
        assert other != port
        monkeypatch.setattr(ports, "TRIES", 2)
        monkeypatch.setattr(ports, "SERVED", [port, other])
        assert {free_port() for _ in range(20)} == {other}
        monkeypatch.setattr(ports, "TRIES", 1)
        monkeypatch.setattr(ports, "SERVED", range(port, port + 1))
        with pytest.raises(OSError, match="none of 1 ports"):
            free_port()


def test_two_runs_of_one_seed_draw_different_ports() -> None:
    """Parallel test runs start with the same state of ``random``."""
    drawn = []
    for _ in range(2):
        random.seed(1)
        drawn.append([free_port() for _ in range(5)])
    assert drawn[0] != drawn[1]
