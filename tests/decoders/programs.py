"""Decoders of what programs send."""

from typing import Final

import msgspec

from berth.schemas.envelope import encode
from berth.schemas.programs.operations import OPERATIONS
from berth.schemas.programs.requests import SubmitRequest
from berth.services.api.request_errors import RequestError, decoded
from berth.services.api.submission import read_submission
from tests.decoders.decoder import Decoder


def read_program_submission(data: bytes) -> None:
    """A job that a program submits, which is written to the bus.

    Raises:
        RequestError: As the program gets it.
    """
    encode(read_submission(data, "someone"))


def read_program_request(data: bytes) -> None:
    """A request of a program, for each operation that takes it.

    Raises:
        RequestError: As the program gets it, if no operation takes it.
    """
    wrong: list[RequestError] = []
    kinds = [one.request for one in OPERATIONS if one.request is not SubmitRequest]
    for kind in kinds:
        try:
            msgspec.json.encode(decoded(data, kind))
        except RequestError as error:
            msgspec.json.encode(error.reply())
            wrong.append(error)
    if len(wrong) == len(kinds):
        raise wrong[0]


DECODERS: Final = (
    Decoder("program-submission", read_program_submission, (RequestError,), "json"),
    Decoder("program-request", read_program_request, (RequestError,), "json"),
)
