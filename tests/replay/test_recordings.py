"""Every recording that is stored here replays unchanged, and a changed one is caught at the very decision."""

from pathlib import Path

import msgspec
import pytest

from berth.core.replay.replay import Replay, Replayed
from berth.core.state.ledger import LedgerDump
from berth.formats.recordings.anonymisation import Anonymiser
from berth.formats.recordings.frames import FramePacker
from berth.formats.recordings.recording import FORMAT, MAGIC, frames_of, read
from berth.schemas.columns import pack_names, unpack_names
from berth.schemas.envelope import NewerVersionError, decode, encode, open_envelope, sealed
from berth.schemas.ledger import Round
from berth.schemas.placement import Placement
from berth.schemas.recording import Entry, RecordingHead
from berth.schemas.recovery import Recovery
from tests.replay.histories import HISTORIES, HISTORIES_NEXT, RELEASE
from tests.support.chained_records import rechained
from tests.support.recordings import reading_of

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("v*/*.berthlog"))


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def loaded(path: Path) -> tuple[RecordingHead, list[Entry]]:
    with path.open("rb") as file:
        reading = read(iter(lambda: file.read(4096), b""))
        return reading.head, list(reading)


def again(head: RecordingHead, entries: list[Entry]) -> Replayed:
    replay = Replay(head.start)
    for entry in entries:
        replay.feed(entry)
    return replay.result


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_stored_recording_comes_out_as_it_was_recorded(path: Path) -> None:
    head, entries = loaded(path)
    result = again(head, entries)
    assert result.is_identical, result.found[0]
    assert result.digest == result.recorded_digest
    assert result.rounds > 0


def test_there_is_a_recording_of_each_history() -> None:
    assert {path.stem for path in FILES if path.parent.name == RELEASE} == {*HISTORIES, *HISTORIES_NEXT}
    assert {path.parent.name for path in FILES} == {RELEASE}


def recoveries_in(entries: list[Entry]) -> list[Recovery]:
    records = (entry for entry in entries if not entry.subject and open_envelope(entry.data).kind == Round.KIND)
    return [one for entry in records for one in decode(entry.data, Round).recoveries]


def test_the_recordings_have_all_kinds_of_steps_and_begin_in_the_middle_of_a_recovery() -> None:
    found = [
        one
        for name in HISTORIES_NEXT
        for path in [FOLDER / RELEASE / f"{name}.berthlog"]
        for one in recoveries_in(loaded(path)[1])
    ]
    assert {one.how for one in found} >= {"grace", "force", "place"}
    assert {one.scope for one in found} >= {"pod", "job"}
    assert any(one.placement is not None for one in found)
    head, _ = loaded(FOLDER / RELEASE / "recoveries-in-racks-from-a-snapshot.berthlog")
    dump = msgspec.msgpack.decode(head.start.ledger, type=LedgerDump)
    assert any(holding.recovers for holding in dump.holdings)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_recording_without_names_comes_out_as_well(path: Path) -> None:
    head, entries = loaded(path)
    anonymiser = Anonymiser(head, LedgerDump)
    for entry in entries:
        anonymiser.learn(entry)
    anonymiser.settle()
    result = again(anonymiser.head(), [anonymiser.entry(entry) for entry in entries])
    assert result.is_identical, result.found[0]
    plain = again(head, entries)
    assert (result.rounds, result.placed, result.refused) == (plain.rounds, plain.placed, plain.refused)


def swapped(placement: Placement, old: str, new: str) -> Placement:
    """The same placement on another node."""
    return msgspec.structs.replace(
        placement, nodes=pack_names([new if name == old else name for name in unpack_names(placement.nodes)])
    )


def exchanged(entries: list[Entry], nodes: tuple[str, str]) -> tuple[list[Entry], int]:
    """The first placement on the first of two nodes that are equal by then put on the second; returns its record too.

    Raises:
        AssertionError: There is none.
    """
    for index, entry in enumerate(entries):
        if entry.subject or open_envelope(entry.data).kind != Round.KIND:
            continue
        record = decode(entry.data, Round)
        for number, verdict in enumerate(record.verdicts):
            if verdict.placement is None or unpack_names(verdict.placement.nodes) != [nodes[0]]:
                continue
            other = msgspec.structs.replace(verdict, placement=swapped(verdict.placement, *nodes))
            verdicts = [*record.verdicts[:number], other, *record.verdicts[number + 1 :]]
            data = encode(msgspec.structs.replace(record, verdicts=verdicts))
            changed = msgspec.structs.replace(entry, data=data)
            return rechained([*entries[:index], changed, *entries[index + 1 :]]), entry.sequence
    raise AssertionError(f"nothing was placed on {nodes[0]} alone")


def test_a_placement_that_was_exchanged_for_one_as_good_is_caught_at_that_decision() -> None:
    head, entries = loaded(FOLDER / RELEASE / "refusals.berthlog")
    first = decode(next(entry for entry in entries if entry.sequence == 2 and not entry.subject).data, Round)
    assert first.verdicts[0].placement is not None
    taken = first.verdicts[0].placement.names()[0]
    untouched = "n5"
    assert all(verdict.placement is None or untouched not in verdict.placement.names() for verdict in first.verdicts)
    changed, sequence = exchanged(entries, (taken, untouched))
    reading = reading_of(b"".join(frames_of(head, changed)))
    replay = Replay(reading.head.start)
    found = next(found for found in map(replay.feed, reading) if found is not None)
    assert found.sequence == sequence == 2
    assert found.subject == f"gang {first.verdicts[0].namespace}/{first.verdicts[0].name}"
    assert f"rank 0 on {untouched}, chips 0-7 (score" in found.recorded
    assert f"rank 0 on {taken}, chips 0-7 (score" in found.replayed
    scores = {node.node: node.score for node in found.nodes}
    assert scores[taken] == scores[untouched] is not None


def test_a_file_of_a_newer_release_is_not_read_by_guess() -> None:
    head, _ = loaded(FOLDER / RELEASE / "refusals.berthlog")
    newer = msgspec.structs.replace(sealed(head), version=RecordingHead.VERSION + 1, release="9.9").encode()
    with pytest.raises(NewerVersionError, match=r"recording\.head of version \d+ needs Berth 9\.9 or later"):
        reading_of(MAGIC + bytes([FORMAT]) + FramePacker().frame(newer, len(newer)))
