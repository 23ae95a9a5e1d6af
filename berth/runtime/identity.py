"""Identities: of a process, unlike that of every other and readable; of a job request."""

import os
import secrets
import socket
import uuid


def process_identity() -> str:
    """Host, process number and a few random digits."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def new_uid() -> str:
    """Identity for a job request that has none."""
    return str(uuid.uuid4())  # noqa: TID251  # this is the identity source
