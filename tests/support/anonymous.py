"""Anonymous recordings in tests: what is left of names, and whether everything is decided as before."""

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import MissingShards
from berth.core.state.cell import State
from berth.core.state.ledger import LedgerDump
from berth.formats.recordings.anonymisation import Anonymiser
from berth.formats.recordings.anonymisation_rules import KEPT_QUEUES, Kind
from berth.schemas.columns import unpack_names
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.ledger import Epoch, Round
from berth.schemas.recording import Entry, RecordingHead

Log = tuple[RecordingHead, list[Entry]]


def anonymised(head: RecordingHead, entries: list[Entry]) -> tuple[Anonymiser, Log]:
    """What replaces names, and the recording without them."""
    anonymiser = Anonymiser(head, LedgerDump)
    for entry in entries:
        anonymiser.learn(entry)
    anonymiser.settle()
    return anonymiser, (anonymiser.head(), [anonymiser.entry(entry) for entry in entries])


def texts_in(log: Log) -> set[str]:
    """All texts of a recording: those in bytes and in tables of names too."""
    found: set[str] = set()
    for one in log[1]:
        found.update(_texts(msgspec.to_builtins(one.subject)), _texts(one.data))
    found.update(_texts(msgspec.msgpack.decode(msgspec.msgpack.encode(log[0]))))
    return found


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401  # a tree of any form
    match value:
        case str():
            yield value
        case bytes():
            yield value.decode("latin-1")
            with contextlib.suppress(ValueError):
                yield from unpack_names(value)
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                yield from _texts(msgspec.msgpack.decode(value))
        case dict():
            for key, inner in value.items():
                yield from _texts(key)
                yield from _texts(inner)
        case list() | tuple():
            for inner in value:
                yield from _texts(inner)
        case _:
            pass


def old_names(anonymiser: Anonymiser) -> list[tuple[Kind, str]]:
    """All names that are replaced."""
    return [(kind, name) for kind in Kind for name in sorted(anonymiser._new[kind])]


def left_of(
    anonymiser: Anonymiser, log: Log, *, least: int = 4, but: tuple[str, ...] = ()
) -> list[tuple[Kind, str, str]]:
    """Names of at least so many characters that some text of a recording still has, and the text.

    A name that happens to be inside what is put in place of names is passed over, and so are those in ``but``, and
    those of queues that everybody has.
    """
    names = [(kind, name) for kind, name in old_names(anonymiser) if name not in KEPT_QUEUES]
    new = {anonymiser.name(kind, name) for kind, name in names}
    texts = sorted(texts_in(log))
    return [
        (kind, name, text)
        for kind, name in names
        if len(name) >= least and name not in but and not any(name in one for one in new)
        for text in texts
        if name in text
    ]


def decided(log: Log) -> int:
    """Decide every round of a recording again; how many there are.

    Raises:
        AssertionError: A round is decided in another way.
    """
    head, entries = log
    state = State()
    scheduler = Scheduler(state)
    if head.start.ledger:
        changes, waiting = state.load(head.start)
        if waiting is not None:
            scheduler.load(waiting, changes)
        else:
            scheduler.note(changes)
    rounds = 0
    for entry in entries:
        if entry.subject:
            scheduler.note(state.apply_fact(entry.subject, entry.sequence, entry.data).changes)
            continue
        envelope = open_envelope(entry.data)
        if envelope.kind == Epoch.KIND:
            scheduler.begin(state.apply_record(entry.sequence, entry.data).changes)
            continue
        record = body_of(envelope, Round)
        opening = scheduler.open(record.at_ms).opening
        assert opening is not None
        made = scheduler.decide(opening, MissingShards(record.shards, record.missing))
        assert made.round == record
        scheduler.adopt(made, state.apply_record(entry.sequence, entry.data))
        rounds += 1
    return rounds
