"""Identity of a process: unlike that of every other, and readable."""

import os
import secrets
import socket


def process_identity() -> str:
    """Host, process number and a few random digits."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
