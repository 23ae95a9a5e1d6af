"""Every recording that was ever stored here replays unchanged, and a changed one is caught at the very decision."""

from pathlib import Path

import msgspec
import pytest

from berth.core.replay.replay import Replay, Replayed
from berth.core.state.ledger import LedgerDump
from berth.formats.recordings.anonymisation import Anonymiser
from berth.formats.recordings.frames import FramePacker
from berth.formats.recordings.recording import FORMAT, MAGIC, RecordingError, frames_of, read
from berth.schemas.columns import pack_names, unpack_names
from berth.schemas.envelope import decode, encode, open_envelope
from berth.schemas.ledger import Round
from berth.schemas.placement import Placement
from berth.schemas.recording import Entry, RecordingHead
from berth.schemas.recovery import Recovery
from tests.replay.histories import HISTORIES, HISTORIES_NEXT, NEXT, RELEASE
from tests.support.recordings import reading_of

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("v*/*.berthlog"))
SHARDS = {"v0.3/silence": 3}
"""Scorers of the recordings of releases whose records do not say it."""
NOT_COMPARED = {"v0.3/chips-from-a-snapshot": 45}
"""Rounds before the next epoch behind a snapshot that does not contain the jobs that waited."""
EXPECTED = {
    "v0.3/bursts": (93, 56, 295, "6f66c07faa9c71d9"),
    "v0.3/chips-from-a-snapshot": (58, 17, 113, "df31aff725666323"),
    "v0.3/chips": (144, 65, 162, "f83392404ade30e7"),
    "v0.3/silence": (148, 66, 190, "756bf2be98a9b300"),
    "v0.3/superpods": (62, 39, 91, "b8521a1c85ecb11e"),
    "v0.3/switches": (60, 33, 132, "fb303eb79336ab04"),
    "v0.4/chips": (232, 98, 314, "a162a6d3953f3afb"),
    "v0.4/doubts": (116, 56, 42, "6fbcb9d8512f5655"),
    "v0.4/queue-conservative-from-a-snapshot": (37, 35, 124, "5006f482b34d3cb0"),
    "v0.4/queue-conservative": (73, 55, 263, "c5c2fe623e90c725"),
    "v0.4/queue-easy-from-a-snapshot": (43, 36, 144, "48c623acdaa1ad22"),
    "v0.4/queue-easy": (75, 55, 228, "98255212af5539b2"),
    "v0.4/queue-fifo-from-a-snapshot": (51, 44, 38, "0af95a4a724049a5"),
    "v0.4/queue-fifo": (73, 55, 82, "308e68b989af1d09"),
    "v0.4/refusals-from-a-snapshot": (50, 36, 164, "1439839d96e53b5e"),
    "v0.4/refusals": (76, 56, 242, "8b98df915c09ca7d"),
    "v0.4/restarts-from-a-snapshot": (40, 13, 68, "15c51a539800d75b"),
    "v0.4/restarts": (119, 57, 112, "37e343e24dff1e41"),
    "v0.4/silence": (96, 36, 170, "bb2fc0ac95233faf"),
    "v0.4/superpods": (62, 42, 96, "7442907fa45c505c"),
    "v0.4/switches-1.0": (59, 31, 127, "01d54945a0d5f34c"),
    "v0.4/switches-2.0": (61, 40, 132, "f9812c1e4f833edc"),
    "v0.4/switches-single-layer": (63, 26, 145, "f304f3e83b4b85ab"),
}
"""Rounds, placements and refusals in each that was released, and the beginning of the digest of its ledger."""


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def loaded(path: Path) -> tuple[RecordingHead, list[Entry]]:
    with path.open("rb") as file:
        reading = read(iter(lambda: file.read(4096), b""))
        return reading.head, list(reading)


def again(head: RecordingHead, entries: list[Entry], name: str = "") -> Replayed:
    replay = Replay(head.start, shards=SHARDS.get(name, 0))
    for entry in entries:
        replay.feed(entry)
    return replay.result


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_stored_recording_comes_out_as_it_was_recorded(path: Path) -> None:
    head, entries = loaded(path)
    result = again(head, entries, name_of(path))
    assert result.is_identical, result.found[0]
    assert result.digest == result.recorded_digest
    assert result.not_compared == NOT_COMPARED.get(name_of(path), 0)
    if path.parent.name != NEXT:
        assert (result.rounds, result.placed, result.refused, result.digest[:16]) == EXPECTED[name_of(path)]


def test_there_is_a_recording_of_each_history() -> None:
    assert {path.stem for path in FILES if path.parent.name == RELEASE} == set(HISTORIES)
    assert {path.stem for path in FILES if path.parent.name == NEXT} == set(HISTORIES_NEXT)
    assert {path.parent.name for path in FILES} == {"v0.3", RELEASE, NEXT}
    assert {name_of(path) for path in FILES if path.parent.name != NEXT} == set(EXPECTED)


def recoveries_in(entries: list[Entry]) -> list[Recovery]:
    records = (entry for entry in entries if not entry.subject and open_envelope(entry.data).kind == Round.KIND)
    return [one for entry in records for one in decode(entry.data, Round).recoveries]


def test_the_recordings_have_all_kinds_of_steps_and_begin_in_the_middle_of_a_recovery() -> None:
    found = [one for path in FILES if path.parent.name == NEXT for one in recoveries_in(loaded(path)[1])]
    assert {one.how for one in found} >= {"grace", "force", "place"}
    assert {one.scope for one in found} >= {"pod", "job"}
    assert any(one.placement is not None for one in found)
    head, _ = loaded(FOLDER / NEXT / "recoveries-in-racks-from-a-snapshot.berthlog")
    dump = msgspec.msgpack.decode(head.start.ledger, type=LedgerDump)
    assert any(holding.recovers for holding in dump.holdings)


@pytest.mark.parametrize("path", [path for path in FILES if name_of(path) not in SHARDS], ids=name_of)
def test_a_recording_without_names_comes_out_as_well(path: Path) -> None:
    """Where records lack the number of scorers that were silent, new names of domains cannot keep to them."""
    head, entries = loaded(path)
    anonymiser = Anonymiser(head, LedgerDump)
    for entry in entries:
        anonymiser.learn(entry)
    anonymiser.settle()
    result = again(anonymiser.head(), [anonymiser.entry(entry) for entry in entries])
    assert result.is_identical, result.found[0]
    if path.parent.name != NEXT:
        assert (result.rounds, result.placed, result.refused) == EXPECTED[name_of(path)][:3]


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
            return [*entries[:index], changed, *entries[index + 1 :]], entry.sequence
    raise AssertionError(f"nothing was placed on {nodes[0]} alone")


def test_a_placement_that_was_exchanged_for_one_as_good_is_caught_at_that_decision() -> None:
    head, entries = loaded(FOLDER / "v0.4" / "refusals.berthlog")
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
    head, _ = loaded(FOLDER / "v0.4" / "refusals.berthlog")
    newer = encode(msgspec.structs.replace(head, release="9.9.9"), version=2, release="9.9.9")
    with pytest.raises(
        RecordingError, match=r"release 9\.9\.9 wrote it with a head of version 2, this one reads version 1"
    ):
        reading_of(MAGIC + bytes([FORMAT]) + FramePacker().frame(newer, len(newer)))
