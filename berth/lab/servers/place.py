"""Where a child process runs: at which address, perhaps in a network of its own, and with whom it ends."""

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Final, NamedTuple

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_LIBC: Final = ctypes.CDLL(None, use_errno=True)  # loaded before any fork


class Place(NamedTuple):
    """Address and surroundings of a child process.

    Attributes:
        host: Address that it listens on.
        enter: What the child does before it becomes the program, such as to enter a namespace; None for nothing. It
            runs between fork and exec: it makes system calls and takes no locks.
    """

    host: str = "127.0.0.1"
    enter: Callable[[], None] | None = None

    def prepare(self) -> Callable[[], None]:
        """Function for a child to run first; it also makes the child end with the thread that starts it."""
        ask, enter = die_with(os.getpid()), self.enter

        def run() -> None:
            ask()
            if enter is not None:
                enter()

        return run


def die_with(parent: int) -> Callable[[], None]:
    """Function for a child to run first: the kernel kills it when the thread of ``parent`` that started it ends."""

    def ask() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the call above
            os._exit(1)

    return ask
