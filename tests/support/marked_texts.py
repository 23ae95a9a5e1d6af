"""Texts that a terminal would obey, in every text of every message of a cell."""

import types
import typing
from collections.abc import Collection
from typing import Any, Final, TypeVar

import msgspec

from berth.schemas.catalogue import MESSAGES
from berth.schemas.chain import FIRST, chained
from berth.schemas.columns import pack_names, unpack_names
from berth.schemas.envelope import DecodeError, body_of, open_envelope, sealed
from berth.schemas.message import Message
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.rules import StatedRule
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell
from tests.support.stored_cells import stream

T = TypeVar("T")
MARK: Final = (
    "\x1b[2J\x1b]0;m\x07\x1b]8;;u:m\x1b\\m\x1b]52;c;bQ==\x07\r\x08\x7f\x84\x85\x9b2J\x9d0;m\x9c"
    "\u202e\u2066\u200f\u061c\u2028\u2029\U000e0041\nm"
)
"""Controls of a terminal and of the direction of writing, line breaks of all kinds, and a tag that nobody sees."""
_KEPT: Final = {
    *("product", "resource", "domain", "kind", "level", "mode", "created", "superpod", "superpods", "leaf", "leaves"),
    *("holder", "policy", "topology", "queue_policy", "resource_levels", "nslb_version"),
}
"""Fields whose text code understands; without them most messages would be passed over."""
_NAME_TABLES: Final = {"names", "nodes"}
"""Fields of names as bytes."""
_KINDS: Final = {message.KIND: message for message in MESSAGES}


def marked(value: T, *, kept: Collection[str] = frozenset(_KEPT)) -> T:
    """A struct with the mark behind every text in it, but for fields of fixed texts and those in ``kept``."""
    return typing.cast(T, _marked(value, type(value), kept))


def _marked(value: object, hint: Any, kept: Collection[str]) -> object:  # noqa: ANN401  # a type of any form
    hint = getattr(hint, "__supertype__", hint)
    match value:
        case str():
            return value + MARK if hint is str else value
        case msgspec.Struct() if not isinstance(value, StatedRule):  # a reader stops at a rule that it lacks
            hints = typing.get_type_hints(type(value))
            return msgspec.structs.replace(
                value,
                **{
                    name: _field(name, getattr(value, name), hints[name], kept)
                    for name in value.__struct_fields__
                    if name not in kept
                },
            )
        case dict():
            key, item = _arguments(hint, dict)
            return {_marked(at, key, kept): _marked(one, item, kept) for at, one in value.items()}
        case list():
            (item,) = _arguments(hint, list)
            return [_marked(one, item, kept) for one in value]
        case tuple():
            items = _arguments(hint, tuple)
            if len(items) == 2 and items[1] is Ellipsis:  # any number of one type
                items = (items[0],) * len(value)
            return tuple(_marked(one, item, kept) for one, item in zip(value, items, strict=True))
        case _:
            return value


def _field(name: str, value: object, hint: object, kept: Collection[str]) -> object:
    if name in _NAME_TABLES and isinstance(value, bytes):
        return pack_names([one + MARK for one in unpack_names(value)])
    return _marked(value, _plain(hint, value), kept)


def _plain(hint: Any, value: object) -> Any:  # noqa: ANN401  # as above
    """The one of the types of a union that fits the value."""
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        fitting = [one for one in typing.get_args(hint) if isinstance(value, typing.get_origin(one) or one)]
        return fitting[0] if fitting else hint
    return hint


def _arguments(hint: object, kind: type) -> tuple[Any, ...]:
    found = typing.get_args(hint) if typing.get_origin(hint) is kind else ()
    return found or ((str, str) if kind is dict else (str,))


def mark(cell: Cell) -> None:
    """Put the mark into all messages of a cell that are stored, as one who may write them could."""
    stream(cell, StreamName.SNAPSHOT).messages.clear()  # the ledger is read from its begin
    for name in (StreamName.FACTS, StreamName.LATEST, StreamName.STATUS, StreamName.INTAKE, StreamName.DEAD):
        messages = stream(cell, name).messages
        for sequence, stored in list(messages.items()):
            message = message_of(stored.data)
            if message is None:
                continue
            message = marked(message)
            subject = stored.subject
            if isinstance(message, JobStatus):
                subject = cell.user.subjects.status(message.namespace, message.name)
            elif isinstance(message, QueueSeen):
                subject = cell.user.subjects.fact_queue(message.queue.name)
            messages[sequence] = stored._replace(data=sealed(message).encode(), subject=subject)
        at = stream(cell, name)
        at.newest = {stored.subject: sequence for sequence, stored in messages.items()}
    digest = FIRST
    messages = stream(cell, StreamName.LEDGER).messages
    for sequence, stored in list(messages.items()):
        before = open_envelope(stored.data)
        record = marked(body_of(before, _KINDS[before.kind]))
        after = sealed(record)
        digest = chained(digest, sequence, after)
        messages[sequence] = stored._replace(data=msgspec.structs.replace(after, chain=digest).encode())


def message_of(data: bytes) -> Message | None:
    """A message of any kind; None if it is none."""
    try:
        envelope = open_envelope(data)
        return body_of(envelope, _KINDS[envelope.kind]) if envelope.kind in _KINDS else None
    except DecodeError:
        return None
