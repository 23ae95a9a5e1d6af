"""Decoders of messages, of facts into the state, of columns and of subjects."""

import contextlib
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from berth.core.replay.log_clock import moment_of
from berth.core.state.cell import State
from berth.core.state.ledger import dump_of
from berth.formats.recordings.recording import read
from berth.schemas.catalogue import MESSAGES
from berth.schemas.columns import offsets, pack, pack_names, unpack, unpack_names
from berth.schemas.envelope import DecodeError, VersionError, decode, encode, open_envelope
from berth.schemas.ledger import facts_known
from berth.schemas.message import Message
from berth.schemas.placement import Placement
from berth.schemas.recording import Entry
from berth.schemas.status import JobStatus, SnapshotBody, stored_status
from berth.schemas.subjects import Subjects, token, untoken
from tests.decoders.decoder import Decoder

SAMPLES: Final = Path(__file__).parents[1] / "contract" / "samples"
RECORDINGS: Final = Path(__file__).parents[1] / "replay"
_NAMED: Final = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_FACTS_MAX: Final = 12
"""Facts of each kind that are taken from the recordings."""


def samples(kind: str) -> dict[str, bytes]:
    """Stored bytes of a kind in all releases."""
    found = sorted(SAMPLES.glob(f"*/{kind}.hex"))
    return {f"{path.parent.name}.{kind}": bytes.fromhex(path.read_text("ascii")) for path in found}


def all_samples() -> dict[str, bytes]:
    """One message of every kind."""
    return {name: data for message in MESSAGES for name, data in list(samples(message.KIND).items())[-1:]}


def ledger_samples() -> dict[str, bytes]:
    """Records of the ledger."""
    return {**samples("ledger.epoch"), **samples("ledger.round")}


def read_message(message: type[Message], data: bytes) -> None:
    """Decode a message, and encode what was decoded."""
    found = decode(data, message)
    encode(found)
    for placement in _placements(found):
        placement.names()
        placement.chips_by_rank()


def _placements(message: Message) -> list[Placement]:
    one = getattr(message, "placement", None)
    return [one] if isinstance(one, Placement) else []


def read_facts_known(data: bytes) -> int:
    """Last fact that a record knew."""
    return facts_known(data)


def fact_seeds() -> dict[str, bytes]:
    """Facts of the newest recordings, each with its subject, and a subject of each kind for the stored samples."""
    found: dict[str, bytes] = {}
    counts: dict[str, int] = {}
    for path in sorted((RECORDINGS / "v0.5").glob("*.berthlog")):
        for entry in read([path.read_bytes()]):
            kind = open_envelope(entry.data).kind
            if entry.subject and counts.setdefault(kind, 0) < _FACTS_MAX:
                counts[kind] += 1
                found[f"{kind}.{counts[kind]}"] = msgspec.msgpack.encode((entry.subject, msgspec.Raw(entry.data)))
    return found


def ledger_dumps() -> dict[str, bytes]:
    """Ledgers with which recordings begin."""
    paths = sorted((RECORDINGS / "v0.5").glob("*-from-a-snapshot.berthlog"))
    return {path.stem: read([path.read_bytes()]).head.start.ledger for path in paths}


def apply_fact(data: bytes) -> None:
    """Apply a fact to the states of a dispatcher and of a scorer that know what the recording begins with.

    Raises:
        DecodeError: The state refuses the fact, or the input is no subject with a message.
    """
    try:
        subject, raw = _NAMED.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"not a subject and a message: {error}") from error
    message = bytes(raw)
    for state in (State(keeps=True), State(owns=lambda _: True)):
        for sequence, (known_subject, known) in enumerate(_known(), 1):
            state.apply_fact(known_subject, sequence, known)
        before = _content(state)
        applied = state.apply_fact(subject, len(_known()) + 1, message)
        if applied.error:
            assert _content(state) == before, "a fact that was refused has changed the state"
            raise DecodeError(applied.error)


def _content(state: State) -> SnapshotBody:
    return msgspec.structs.replace(decode(state.dump(), SnapshotBody), facts_seq=0)


_KNOWN: list[tuple[str, bytes]] = []


def _known() -> list[tuple[str, bytes]]:
    """The first facts of a recording."""
    if not _KNOWN:
        first = min((RECORDINGS / "v0.5").glob("*.berthlog"))
        entries = [entry for entry in read([first.read_bytes()]) if entry.subject]
        _KNOWN.extend((entry.subject, entry.data) for entry in entries[:8])
    return _KNOWN


def read_column(data: bytes) -> None:
    """Column of four bytes, and the sums of its values."""
    assert pack(unpack(data, 4), 4) == data, "a column differs after it was read and written"
    offsets(unpack(data, 4))


def read_stored_status(data: bytes) -> None:
    """A status with the subject that it is stored on.

    Raises:
        DecodeError: It does not decode.
        AssertionError: It is read on the subject of another job as well.
    """
    names = ("a", "b")
    with contextlib.suppress(DecodeError):
        found = decode(data, JobStatus)
        names = (found.namespace, found.name)
    subject = Subjects("cell").status(*names)
    stored_status(subject, data)
    with contextlib.suppress(DecodeError):
        stored_status(f"{subject}x", data)
        raise AssertionError("a status was read on the subject of another job")


def read_names(data: bytes) -> None:
    """Name table, which has one form only where it is sorted as a reader writes it."""
    names = unpack_names(data)
    assert unpack_names(pack_names(names)) == names, "names differ after they were written and read"


def read_token(data: bytes) -> None:
    """Name in a token of a subject.

    Raises:
        ValueError: It is not UTF-8, or no token.
    """
    text = data.decode()
    assert token(untoken(text)) == text, "a token differs after it was read and written"


def read_moment(data: bytes) -> None:
    """Time of an entry of a recording."""
    for subject in ("", "berth.x.fact.x"):
        moment_of(Entry(sequence=1, subject=subject, data=data))


DECODERS: Final = (
    *(
        Decoder(
            message.KIND,
            partial(read_message, message),
            (DecodeError, VersionError),
            "msgpack",
            partial(samples, message.KIND),
        )
        for message in MESSAGES
    ),
    Decoder("envelope", open_envelope, (DecodeError,), "msgpack", all_samples),
    Decoder("stored-status", read_stored_status, (DecodeError,), "msgpack", partial(samples, "status")),
    Decoder("facts-known", read_facts_known, (DecodeError, VersionError), "msgpack", ledger_samples),
    Decoder("moment", read_moment, (VersionError,), "msgpack", all_samples),
    Decoder("state-fact", apply_fact, (DecodeError, VersionError), "msgpack", fact_seeds),
    Decoder("ledger-dump", dump_of, (DecodeError,), "msgpack", ledger_dumps),
    Decoder("column", read_column, (ValueError,), "bytes"),
    Decoder("name-table", read_names, (ValueError,), "bytes"),
    Decoder("token", read_token, (ValueError,), "text"),
)
