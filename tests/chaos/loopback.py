"""The own host, for proxies of tests that need no network of their own."""

import socket
from typing import Final


class Loopback:
    """See above."""

    address: Final = "127.0.0.1"

    def socket(self) -> socket.socket:
        """A TCP socket, not blocking; it may listen on a port that was in use a moment ago."""
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setblocking(False)  # noqa: FBT003  # the library's own signature
        return made
