"""Decoders of what programs and kube-scheduler send."""

import json
from typing import Final

import msgspec

from berth.formats.kubernetes.extender import (
    ExtenderError,
    bind_answer,
    bind_call,
    filter_answer,
    filter_call,
    preempt_answer,
    preempt_call,
)
from berth.runtime.bus.port import Stored
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.envelope import encode
from berth.schemas.programs.operations import OPERATIONS
from berth.schemas.programs.requests import SubmitRequest
from berth.schemas.subjects import Subjects
from berth.services.api.event_mark import Mark
from berth.services.api.event_tail import Reading
from berth.services.api.request_errors import RequestError, decoded
from berth.services.api.submission import read_submission
from tests.decoders.decoder import Decoder

_SUBJECTS: Final = Subjects("x")


def read_program_submission(data: bytes) -> None:
    """A job that a program submits, which is written to the bus.

    Raises:
        RequestError: As the program gets it.
    """
    encode(read_submission(data, "someone").request)


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


def read_stored_event(data: bytes) -> None:
    """An event as the service reads it of the stream.

    Raises:
        ValueError: It is none, and is left out.
    """
    if not Reading(_SUBJECTS, DEFAULT_LOG).row(Stored(_SUBJECTS.event_job("team", "train"), 1, data, 1)).data:
        raise ValueError("it is left out")


def read_mark(data: bytes) -> None:
    """The mark of a request for events, which is that of a reply.

    Raises:
        RequestError: As the program gets it.
    """
    text = data.decode(errors="replace")
    assert Mark.of(Mark.of(text).text()) == Mark.of(text)


def read_extender_filter(data: bytes) -> None:
    """A question of kube-scheduler on which nodes a pod may be, and its answer.

    Raises:
        ExtenderError: As kube-scheduler gets it.
    """
    call = filter_call(data)
    for node in (*call.nodes[:1], "", "another"):
        json.loads(filter_answer(call, node, "why"))


def read_extender_bind(data: bytes) -> None:
    """A question of kube-scheduler to bind a pod, and its answer.

    Raises:
        ExtenderError: As kube-scheduler gets it.
    """
    json.loads(bind_answer(bind_call(data).node))


def read_extender_preempt(data: bytes) -> None:
    """A question of kube-scheduler which pods it may evict, and its answer.

    Raises:
        ExtenderError: As kube-scheduler gets it.
    """
    preempt_call(data)
    json.loads(preempt_answer())


DECODERS: Final = (
    Decoder("extender-filter", read_extender_filter, (ExtenderError,), "json"),
    Decoder("extender-bind", read_extender_bind, (ExtenderError,), "json"),
    Decoder("extender-preempt", read_extender_preempt, (ExtenderError,), "json"),
    Decoder("program-submission", read_program_submission, (RequestError,), "json"),
    Decoder("program-mark", read_mark, (RequestError,), "text"),
    Decoder("stored-event", read_stored_event, (ValueError,), "json"),
    Decoder("program-request", read_program_request, (RequestError,), "json"),
)
