"""The file system as a process: ``python -m tests.chaos.disk FOLDER`` mounts it there.

Orders come as lines of JSON on stdin, each is answered by one line on stdout. When stdin ends, the file system is
unmounted: it does not outlive the process that started it.
"""

import ctypes
import dataclasses
import json
import os
import selectors
import sys
import time
from typing import Any, Final

from tests.chaos.disk.protocol import BUFFER_BYTES, Protocol
from tests.chaos.disk.volume import Volume

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_NOSUID_NODEV: Final = 2 | 4
_DETACH: Final = 2


class Process:
    """Answers the kernel and obeys orders, one thing at a time: so a slow disk is slow for all who use it.

    Args:
        folder: Where to mount.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._volume = Volume()
        self._protocol = Protocol(self._volume, before_write=self._wait_write, before_sync=self._wait_sync)
        self._write_s = 0.0
        self._sync_s = 0.0
        self._kernel = os.open("/dev/fuse", os.O_RDWR)
        self._buffer = bytearray(BUFFER_BYTES)
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Mount, serve until stdin ends, unmount.

        Raises:
            OSError: The kernel does not mount it.
        """
        options = f"fd={self._kernel},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
        target = os.fsencode(self._folder)
        if _LIBC.mount(b"disk", target, b"fuse", _NOSUID_NODEV, options.encode()):
            raise OSError(ctypes.get_errno(), f"cannot mount a file system on {self._folder}")
        try:
            self._selector.register(self._kernel, selectors.EVENT_READ)
            self._selector.register(0, selectors.EVENT_READ)
            _say({})
            while all(self._serve(key.fd) for key, _ in self._selector.select()):
                pass
        finally:
            _LIBC.umount2(target, _DETACH)

    def _serve(self, source: int) -> bool:
        """Serve one order or request; returns whether to go on.

        Raises:
            SystemExit: It was unmounted by somebody else.
        """
        if source == 0:
            line = sys.stdin.buffer.readline()
            if line:
                _say(self._obey(json.loads(line)))
            return bool(line)
        try:
            size = os.readv(self._kernel, [self._buffer])
            answer = self._protocol.answer(memoryview(self._buffer)[:size])
            if answer is not None:
                os.write(self._kernel, answer)
        except FileNotFoundError:
            pass  # who asked was killed meanwhile
        except OSError as error:
            raise SystemExit(f"the kernel does not serve the file system any more: {error}") from error
        return True

    def _obey(self, order: dict[str, Any]) -> dict[str, Any]:
        match order.pop("do"):
            case "limit":
                self._volume.limit_bytes = order["bytes"]
            case "delay":
                self._write_s, self._sync_s = order["write_s"], order["sync_s"]
            case "stall":
                self._selector.unregister(self._kernel)
            case "go":
                self._selector.register(self._kernel, selectors.EVENT_READ)
            case "write_back":
                self._volume.write_back()
            case "erase":
                self._volume.erase()
            case "lose_power":
                self._volume.lose_power(order["seed"])
            case "figures":
                return dataclasses.asdict(self._volume.figures)
            case unknown:
                raise SystemExit(f"no such order: {unknown}")
        return {}

    def _wait_write(self) -> None:
        time.sleep(self._write_s)

    def _wait_sync(self) -> None:
        time.sleep(self._sync_s)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Process(sys.argv[1]).run()
