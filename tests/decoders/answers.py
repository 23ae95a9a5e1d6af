"""Decoders of the client, and of commands that read what others stored: answers, events, dead letters, keys."""

import tempfile
from pathlib import Path
from typing import Final

import msgspec

from berth.cli.cluster.dead import lines_of
from berth.cli.cluster.dead_rows import details_of
from berth.client.client import _read
from berth.client.errors import ClientError, RequestError
from berth.runtime.dead_letters.letters import Letter
from berth.runtime.keys.key_folder import KeyFolder, KeysError
from berth.schemas.programs.events import EventsReply
from berth.schemas.programs.replies import CancelReply, ExplainReply, NodesReply, StatusReply, SubmitReply
from berth.schemas.status import DeadLetter
from tests.decoders.decoder import Decoder
from tests.decoders.messages import all_samples

_ANSWERS: Final = (CancelReply, EventsReply, ExplainReply, NodesReply, StatusReply, SubmitReply)


def read_answer(data: bytes) -> None:
    """An answer of the service to a program, for each operation that it may be of.

    Raises:
        ClientError: As the program gets it, if it is of none.
    """
    wrong: list[ClientError] = []
    for kind in _ANSWERS:
        try:
            msgspec.json.encode(_read(data, kind))
        except (ClientError, RequestError) as error:
            wrong.append(error)
    if len(wrong) == len(_ANSWERS):
        raise wrong[0]


def read_dead_content(data: bytes) -> None:
    """The message of a dead letter, as it is printed, and as JSON."""
    details = details_of(Letter(1, DeadLetter("INTAKE", 1, "berth.x.intake.x", "undecodable", data, 1)))
    msgspec.json.encode(details)
    for line in lines_of(details):
        line.encode()


def read_key_folder(data: bytes) -> None:
    """The file of a folder with keys.

    Raises:
        KeysError: It is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="berth-decoder-") as folder:
        Path(folder, "keys.json").write_bytes(data)
        keys = KeyFolder.open(Path(folder), lambda: 1)
        for user in keys.users:
            user.rights(keys.cell)


DECODERS: Final = (
    Decoder("client-answer", read_answer, (ClientError, RequestError), "json"),
    Decoder("dead-content", read_dead_content, (), "bytes", all_samples),
    Decoder("key-folder", read_key_folder, (KeysError,), "json"),
)
