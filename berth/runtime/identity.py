"""Identities of processes and of job requests."""

import os
import secrets
import socket
import uuid


def process_identity() -> str:
    """Unique and readable identity of this process: host name, process id, six random digits."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def new_uid() -> str:
    """UID for a job request that has none."""
    return str(uuid.uuid4())  # noqa: TID251  # this is the identity source
