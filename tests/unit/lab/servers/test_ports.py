"""Ports for servers of this machine."""

import itertools
import os
import socket
from pathlib import Path

import pytest

from berth.lab.servers import ports
from berth.lab.servers.ports import free_ports
from berth.runtime.errors import FatalError

_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_no_port_is_given_twice() -> None:
    given = [port for count in (7, 1, 7) for port in free_ports(count)]
    assert len(given) == len(set(given)) == 15


def test_processes_that_start_together_get_ports_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    for pid in range(5_000, 5_008):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        given += free_ports(1)
    given.sort()
    assert min(later - earlier for earlier, later in itertools.pairwise(given)) > 500


@pytest.mark.skipif(not _CONNECTIONS.exists(), reason="not Linux")
def test_no_port_is_one_that_a_connection_can_get() -> None:
    lowest = int(_CONNECTIONS.read_text("ascii").split()[0])
    assert all(port < lowest for port in free_ports(20))


def test_a_port_on_which_a_server_listens_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = free_ports(2)
    monkeypatch.setattr(ports, "_PORTS", range(min(first, second), max(first, second) + 1))
    monkeypatch.setattr(os, "getpid", lambda: 0)
    with socket.create_server(("127.0.0.1", first)):
        for _ in range(4):
            assert first not in free_ports(1)


def test_it_is_an_error_that_there_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(ports, "_PORTS", range(port, port + 1))
    with pytest.raises(FatalError, match=f"no 2 free ports from {port} to {port}"):
        free_ports(2)
