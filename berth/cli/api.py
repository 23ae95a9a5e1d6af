"""Questions of commands to the service ``api``, which holds the state of the cell.

It is asked where NATS has no users: otherwise it knows callers by an identity, and persons have none.
"""

from typing import Final, TypeVar

import msgspec

from berth.runtime.bus.access import access_of
from berth.runtime.bus.port import Bus
from berth.runtime.config import bus_from_environment
from berth.runtime.errors import ShellError
from berth.schemas.programs.shape import Reply, Request

_ANSWER_S: Final = 2.0
_Answer = TypeVar("_Answer", bound=Reply)


class NoApiError(Exception):
    """The service does not answer, or not to this caller."""


async def ask(bus: Bus, verb: str, asked: Request, answer: type[_Answer], *, wait_s: float = _ANSWER_S) -> _Answer:
    """The answer to a request.

    Args:
        bus: The cell.
        verb: The operation.
        asked: The request.
        answer: Kind of the reply.
        wait_s: How long to wait for it.

    Raises:
        NoApiError: ``api`` does not reply, or replies with an error.
    """
    if access_of(bus_from_environment("")).name:
        raise NoApiError
    try:
        data = await bus.request(bus.subjects.api(verb), msgspec.json.encode(asked), timeout_s=wait_s)
        if not msgspec.json.decode(data, type=Reply).ok:
            raise NoApiError
        return msgspec.json.decode(data, type=answer)
    except (ShellError, msgspec.MsgspecError) as error:
        raise NoApiError from error
