"""Ports of the loopback interface for servers of this machine.

They are below the range from which Linux takes ports for connections. A port that the kernel chose itself can be that
of a connection before its server listens on it.
"""

import itertools
import os
import socket
from typing import Final

from berth.runtime.errors import FatalError

_PORTS: Final = range(20000, 32000)
_STRIDE: Final = 7417
"""Processes that start one after the other begin far apart: a port of which another has not made use yet looks free."""
_ports_taken: Final = itertools.count()


def free_ports(count: int) -> list[int]:
    """Free ports, different from those that this process got before.

    Args:
        count: Number of ports, at least 1.

    Raises:
        FatalError: There are too few.
    """
    found: list[int] = []
    first = os.getpid() * _STRIDE
    for _ in range(len(_PORTS)):
        port = _PORTS[(first + next(_ports_taken)) % len(_PORTS)]
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise FatalError(f"no {count} free ports from {_PORTS.start} to {_PORTS.stop - 1}")
