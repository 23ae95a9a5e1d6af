"""A network of this process alone: each component has an address in a namespace of its own, and packets can be lost.

:func:`isolate` puts the process into new namespaces of network and mounts, so nothing of this reaches the machine, and
nothing stays behind. A :class:`Host` is one more network namespace, joined with that of the process by a pair of
virtual interfaces; the process routes between them. A rule that drops what one address sends to another makes a
partition in one direction, and two of them one in both: established connections stand still, as with a broken switch.
"""

import ctypes
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from berth.lab.servers.place import Place

_NEWNET: Final = 0x40000000  # linux/sched.h
_NEWNS: Final = 0x00020000
_NEWUSER: Final = 0x10000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PREFIX: Final = "10.88.0."
_ROUTER: Final = "10.88.255.1"
_HOSTS_MAX: Final = 250
_RULES_FROM: Final = 1000
"""Preference of the first rule; the kernel looks at the table of routes at 32766."""


class IsolationError(Exception):
    """The kernel or the rights of this user do not allow namespaces."""


def isolate() -> None:
    """Move this process into namespaces of its own; call it once, before any thread is started.

    Raises:
        IsolationError: It is not allowed; says what is needed.
    """
    user, group = os.getuid(), os.getgid()
    flags = _NEWNET | _NEWNS | (_NEWUSER if user else 0)
    if _LIBC.unshare(flags):
        reason = os.strerror(ctypes.get_errno())
        raise IsolationError(f"chaos needs root, or a kernel that lets users make namespaces: unshare: {reason}")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    try:
        _run("mount", "--make-rprivate", "/")
        _ip("link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    except OSError as error:
        raise IsolationError(f"chaos needs ip and mount, and a network that it may set up: {error}") from error


class Host(NamedTuple):
    """An address with a namespace of its own.

    Attributes:
        number: Last part of the address.
        fd: Of the namespace, which lives as long as this is open or a process is in it.
    """

    name: str
    number: int
    fd: int

    @property
    def address(self) -> str:
        """Address of the host."""
        return f"{_PREFIX}{self.number}"

    @property
    def outer(self) -> str:
        """Name of its end of the wire among those of all hosts."""
        return f"v{self.number}"

    @property
    def place(self) -> Place:
        """Where its processes run."""
        return Place(self.address, self.enter)

    @property
    def enter(self) -> Callable[[], None]:
        """Function that moves the thread that calls it into the namespace."""
        fd = self.fd

        def run() -> None:
            if _LIBC.setns(fd, _NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

        return run

    def socket(self) -> socket.socket:
        """A TCP socket that sends and receives in the namespace, not blocking.

        Raises:
            OSError: The thread cannot return to its own namespace.
        """
        with Path("/proc/thread-self/ns/net").open() as own:
            self.enter()
            try:
                made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            finally:
                if _LIBC.setns(own.fileno(), _NEWNET):
                    raise OSError(ctypes.get_errno(), "setns back")
        made.setblocking(False)  # noqa: FBT003  # the library's own signature
        return made


class Network:
    """Hosts, and what is lost between them. A context manager.

    Attributes:
        hosts: By name.
        cuts: Pairs of names: what the first sends to the second is lost.
    """

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.cuts: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            # Closed namespaces go when the kernel gets to it: until then the next network could not have the name.
            with suppress(OSError):
                _ip("link", "del", host.outer)
            os.close(host.fd)
        self.hosts.clear()

    def host(self, name: str) -> Host:
        """The host of a name; made at the first call."""
        if name not in self.hosts:
            assert len(self.hosts) < _HOSTS_MAX
            self.hosts[name] = _made(name, len(self.hosts) + 1)
        return self.hosts[name]

    def cut(self, sender: str, receiver: str) -> None:
        """Lose all that ``sender`` sends to ``receiver`` from now on."""
        if (sender, receiver) not in self.cuts:
            _ip("rule", "add", *self._rule(sender, receiver))
            self.cuts.add((sender, receiver))

    def heal(self, sender: str, receiver: str) -> None:
        """Lose it no more."""
        if (sender, receiver) in self.cuts:
            _ip("rule", "del", *self._rule(sender, receiver))
            self.cuts.discard((sender, receiver))

    def _rule(self, sender: str, receiver: str) -> list[str]:
        one, other = self.hosts[sender], self.hosts[receiver]
        preference = _RULES_FROM + one.number * 100 + other.number
        return ["pref", str(preference), "from", one.address, "to", other.address, "blackhole"]


def _made(name: str, number: int) -> Host:
    """A new namespace with an address and a way to all others.

    Raises:
        OSError: The kernel refuses.
    """
    with Path("/proc/thread-self/ns/net").open() as own:
        if _LIBC.unshare(_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _ip("link", "set", "lo", "up")
        finally:
            _LIBC.setns(own.fileno(), _NEWNET)
    host = Host(name, number, fd)
    outer = host.outer
    _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", f"/proc/{os.getpid()}/fd/{fd}")
    _ip("addr", "add", f"{_ROUTER}/32", "dev", outer)
    _ip("link", "set", outer, "up")
    _ip("route", "add", f"{host.address}/32", "dev", outer)
    for words in (
        ("addr", "add", f"{host.address}/32", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("route", "add", f"{_ROUTER}/32", "dev", "eth0"),
        ("route", "add", "default", "via", _ROUTER, "dev", "eth0"),
    ):
        _ip(*words, within=host)
    return host


def _ip(*words: str, within: Host | None = None) -> None:
    _run("ip", *words, enter=within.enter if within is not None else None)


def _run(*words: str, enter: Callable[[], None] | None = None) -> None:
    """Run a program of the system.

    Raises:
        OSError: It is missing or fails; says what it wrote.
    """
    done = subprocess.run(list(words), capture_output=True, text=True, check=False, preexec_fn=enter)  # noqa: S603  # fixed words
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
