"""Damaged records, facts and snapshots: nothing of them is applied, and only the documented errors are raised."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth.core.errors import InvariantError
from berth.core.replay.replay import Replay, ReplayError
from berth.core.state.cell import State
from berth.core.state.ledger import pods_of
from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.switches.placed import switch_of
from berth.formats.recordings.recording import read
from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.ledger import Round
from berth.schemas.placement import Placement
from berth.schemas.recording import Entry
from berth.schemas.status import SnapshotBody
from tests.support.damage import damaged

STORED = Path(__file__).parents[1] / "replay" / "v0.5"
_ENTRIES = 40
"""Entries of a recording that are looked at: enough for placements, releases and refusals."""
FROM_BEGINNING = ("switches-2.0", "superpods", "refusals", "restarts")
FROM_SNAPSHOT = ("refusals-from-a-snapshot", "restarts-from-a-snapshot", "queue-easy-from-a-snapshot")


class Story(NamedTuple):
    """The beginning of a recording."""

    start: SnapshotBody
    entries: list[Entry]


@cache
def story(name: str) -> Story:
    reading = read([(STORED / f"{name}.berthlog").read_bytes()])
    return Story(reading.head.start, [entry for entry, _ in zip(reading, range(_ENTRIES), strict=False)])


def feed(state: State, entry: Entry) -> None:
    if entry.subject:
        state.apply_fact(entry.subject, entry.sequence, entry.data)
    else:
        state.apply_record(entry.sequence, entry.data)


@st.composite
def wrong_bodies(draw: st.DrawFn, data: bytes) -> bytes:
    """A message whose envelope is whole and whose body is not."""
    envelope = open_envelope(data)
    body = msgspec.Raw(draw(damaged(bytes(envelope.body))))
    return msgspec.msgpack.encode((envelope.kind, envelope.version, body))


@given(st.sampled_from(FROM_BEGINNING), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_record_that_does_not_decode_changes_nothing(name: str, data: st.DataObject) -> None:
    state, entries = State(keeps=True), story(name).entries
    records = [index for index, entry in enumerate(entries) if not entry.subject]
    at = data.draw(st.sampled_from(records))
    for entry in entries[:at]:
        feed(state, entry)
    before = state.dump()
    wrong = data.draw(wrong_bodies(entries[at].data))
    try:
        state.apply_record(entries[at].sequence, wrong)
    except DecodeError:
        assert state.dump() == before
        feed(state, entries[at])
    except InvariantError:
        pass  # it decodes, and says what cannot be


@given(st.sampled_from(FROM_BEGINNING), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_replay_tells_of_every_damage(name: str, data: st.DataObject) -> None:
    entries = story(name).entries
    at = data.draw(st.sampled_from([index for index, entry in enumerate(entries) if not entry.subject]))
    wrong = msgspec.structs.replace(entries[at], data=data.draw(wrong_bodies(entries[at].data)))
    replay = Replay(story(name).start)
    for entry in entries[:at]:
        assert replay.feed(entry) is None
    with suppress(ReplayError):  # the damage may also make another record that could be
        replay.feed(wrong)


@given(st.sampled_from(FROM_SNAPSHOT), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_snapshot_is_refused_or_loaded(name: str, data: st.DataObject) -> None:
    start = story(name).start
    wrong = msgspec.structs.replace(start, ledger=data.draw(damaged(start.ledger)))
    state = State()
    try:
        state.load(wrong)
    except DecodeError:
        assert (len(state.table), state.fold.holdings) == (0, {}), "nothing was loaded"
    except InvariantError:
        pass  # it decodes, and says what cannot be
    else:
        for holding in state.fold.holdings.values():
            assert len(state.owned(holding.key)) == len(pods_of(holding.placement))


@given(st.sampled_from(FROM_SNAPSHOT), st.binary(max_size=200), st.integers(0, 1 << 20))
def test_a_snapshot_of_other_bytes_does_not_load(name: str, junk: bytes, at: int) -> None:
    start = story(name).start
    at %= len(start.ledger)
    with pytest.raises(DecodeError, match="the folded ledger does not decode"):
        State().load(msgspec.structs.replace(start, ledger=start.ledger[:at]))
    with suppress(DecodeError, InvariantError):  # in a text or a number, junk may be none
        State().load(msgspec.structs.replace(start, ledger=start.ledger[:at] + junk + start.ledger[at:]))


def test_the_stored_records_hold_placements() -> None:
    found: list[Placement] = []
    for name in FROM_BEGINNING:
        for entry in story(name).entries:
            envelope = open_envelope(entry.data)
            if envelope.kind == Round.KIND:
                found += [
                    verdict.placement for verdict in body_of(envelope, Round).verdicts if verdict.placement is not None
                ]
    assert any(switch_of(one) is not None for one in found)
    assert any(block_of(one) is not None for one in found)
