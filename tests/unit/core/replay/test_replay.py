"""A replay of histories made by hand: what it compares, what it says where decisions differ, what it cannot compare."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from berth.cli.recordings.replay import lines_of
from berth.core.replay.divergence import Difference
from berth.core.replay.replay import Replay, ReplayError, replayed
from berth.core.state.ledger import LedgerDump
from berth.schemas.chain import FIRST
from berth.schemas.columns import pack_names, unpack_names
from berth.schemas.envelope import NewerVersionError, body_of, decode, encode, open_envelope
from berth.schemas.facts import NodeHealth, PodPhase, TimerSeen
from berth.schemas.ledger import Correction, Epoch, Eviction, Release, Round
from berth.schemas.nodes import NodeCondition
from berth.schemas.placement import Run, placement_of
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Refusal
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job, a_node
from tests.support.chained_records import broken, rechained
from tests.support.recordings import tick
from tests.support.replays import entries_after, entries_of, see_same
from tests.support.unreliable_cells import UnreliableCell


class Story:
    """A short history of a real cell, and its records by sequence."""

    def __init__(self, entries: list[Entry], snapshots: list[SnapshotBody]) -> None:
        self.entries = entries
        self.snapshots = snapshots

    def changed(self, sequence: int, change: Callable[[Round], Round]) -> list[Entry]:
        """The history with another record."""
        return rechained(
            msgspec.structs.replace(entry, data=encode(change(decode(entry.data, Round))))
            if not entry.subject and entry.sequence == sequence
            else entry
            for entry in self.entries
        )


@pytest.fixture
async def story() -> Story:
    """Four equal nodes; a job on one, one on two, one that is refused, ends, and one that is rejected."""
    cell = await UnreliableCell(shards=2).open()
    await cell.nodes([a_node(f"n{number}", leaf=f"leaf{number % 2}") for number in range(4)])
    await cell.turns()
    for number, (chips, replicas) in enumerate(((4, 1), (8, 2), (8, 4), (2, 1))):
        await cell.submit(a_job(f"job{number}", chips=chips, replicas=replicas))
        await cell.turns(2)
    await cell.pods("job0", PodPhase.SUCCEEDED)
    await cell.cancel("job1")
    await cell.turns(2)
    return await story_of(cell)


async def story_of(cell: UnreliableCell) -> Story:
    """What a cell stored until now, where it ends."""
    facts = await cell.user.read(StreamName.FACTS)
    records = await cell.user.read(StreamName.LEDGER)
    await cell.close()
    return Story(entries_of(facts, records), cell.snapshots)


def differences(entries: Sequence[Entry], start: SnapshotBody = BEGINNING) -> list[Difference]:
    replay = Replay(start)
    found: list[Difference] = []
    for entry in entries:
        told = replay.feed(entry)
        if told is not None:
            found.append(told)
            break
    return found


def test_a_history_comes_out_as_it_was(story: Story) -> None:
    result = see_same(story.entries)
    assert (result.epochs, result.placed, result.refused, result.void) == (1, 3, 1, 0)
    assert result.decisions == result.placed + result.refused + 2, "a release and an eviction"
    assert result.events == len(story.entries)
    assert replayed(BEGINNING, story.entries) == result


def test_every_snapshot_begins_it_as_well(story: Story) -> None:
    assert len(story.snapshots) > 5
    for start in story.snapshots:
        see_same(story.entries, start)


def test_a_placement_on_an_equal_node_is_caught_with_the_scores_of_both(story: Story) -> None:
    def other(record: Round) -> Round:
        verdict = record.verdicts[0]
        assert verdict.placement is not None
        assert unpack_names(verdict.placement.nodes) == ["n0"]
        placement = msgspec.structs.replace(verdict.placement, nodes=pack_names(["n3"]))
        return msgspec.structs.replace(record, verdicts=[msgspec.structs.replace(verdict, placement=placement)])

    found = differences(story.changed(2, other))[0]
    assert (found.sequence, found.round, found.epoch) == (2, 1, 1)
    assert found.subject == "gang default/job0"
    assert found.recorded.startswith("placed: rank 0 on n3, chips 0-3 (score ")
    assert found.replayed == found.recorded.replace("n3", "n0")
    assert [(node.node, node.free, node.health, node.held_by) for node in found.nodes] == [
        ("n3", list(range(8)), "healthy", []),
        ("n0", list(range(8)), "healthy", []),
    ]
    assert (found.queue, found.queue_length, found.asleep) == (["default/job0"], 1, [])
    assert found.facts_given == found.facts_seq == 3
    text = "\n".join(lines_of(found))
    assert "node n3: chips 0-7 free; healthy; score" in text
    assert "job default/job0 accepted" in text


def test_other_chips_of_the_same_node_are_told(story: Story) -> None:
    def other(record: Round) -> Round:
        verdict = record.verdicts[0]
        assert verdict.placement is not None
        placement = msgspec.structs.replace(verdict.placement, chips=bytes([4, 5, 6, 7]))
        return msgspec.structs.replace(record, verdicts=[msgspec.structs.replace(verdict, placement=placement)])

    found = differences(story.changed(2, other))[0]
    assert ("chips 4-7" in found.recorded, "chips 0-3" in found.replayed) == (True, True)


async def test_a_node_of_a_difference_is_as_the_gangs_before_it_in_the_round_left_it() -> None:
    cell = await UnreliableCell().open()
    await cell.submit(a_job("one", chips=4), a_job("two", chips=2))
    await cell.turns(3)
    await cell.nodes([a_node("n0")])
    await cell.turns()
    story = await story_of(cell)

    def other(record: Round) -> Round:
        first, second = record.verdicts
        assert second.placement is not None
        placement = msgspec.structs.replace(second.placement, chips=bytes([6, 7]))
        return msgspec.structs.replace(record, verdicts=[first, msgspec.structs.replace(second, placement=placement)])

    last = max(entry.sequence for entry in story.entries if not entry.subject)
    found = differences(story.changed(last, other))[0]
    assert found.subject == "gang default/two"
    assert [(node.node, node.free, node.held_by) for node in found.nodes] == [("n0", [4, 5, 6, 7], ["default/one"])]


def test_a_refusal_with_another_number_is_told_by_its_field(story: Story) -> None:
    sequence = next(
        entry.sequence
        for entry in story.entries
        if not entry.subject and b"no-room" in entry.data
    )  # fmt: skip

    def other(record: Round) -> Round:
        verdict = record.verdicts[0]
        assert verdict.refusal is not None
        refusal = msgspec.structs.replace(verdict.refusal, form_because="chance")
        return msgspec.structs.replace(record, verdicts=[msgspec.structs.replace(verdict, refusal=refusal)])

    found = differences(story.changed(sequence, other))[0]
    assert found.recorded == "refusal.form_because is 'chance'"
    assert found.replayed.startswith("refusal.form_because is ")


def test_a_refused_gang_that_could_be_placed_is_told_with_both_words(story: Story) -> None:
    def other(record: Round) -> Round:
        verdict = record.verdicts[0]
        refusal = Refusal(code="no-room", pods_need=1, nodes_total=4)
        return msgspec.structs.replace(
            record, verdicts=[msgspec.structs.replace(verdict, placement=None, refusal=refusal)]
        )

    found = differences(story.changed(2, other))[0]
    assert found.recorded == "refused: 0 of 4 nodes fit"
    assert found.replayed.startswith("placed: rank 0 on n0, chips 0-3 (score ")


def test_a_verdict_that_nobody_would_give_and_one_that_is_missing_are_told(story: Story) -> None:
    def none(record: Round) -> Round:
        return msgspec.structs.replace(record, verdicts=[])

    found = differences(story.changed(2, none))[0]
    assert (found.subject, found.recorded) == ("gang default/job0", "no verdict on it in this round")

    def more(record: Round) -> Round:
        ghost = msgspec.structs.replace(record.verdicts[0], name="ghost", uid="ghost", placement=None)
        ghost = msgspec.structs.replace(ghost, refusal=Refusal(code="no-room", nodes_total=1))
        return msgspec.structs.replace(record, verdicts=[*record.verdicts, ghost])

    found = differences(story.changed(2, more))[0]
    assert (found.subject, found.replayed) == ("gang default/ghost", "no verdict on it in this round")


def test_other_releases_and_evictions_are_told(story: Story) -> None:
    def is_end(entry: Entry) -> bool:
        envelope = open_envelope(entry.data)
        return not entry.subject and envelope.kind == Round.KIND and bool(body_of(envelope, Round).releases)

    sequence = next(entry.sequence for entry in story.entries if is_end(entry))

    def failed(record: Round) -> Round:
        return msgspec.structs.replace(record, releases=[Release("uid-job0", 1, "failed")])

    def unasked(record: Round) -> Round:
        return msgspec.structs.replace(record, evictions=[*record.evictions, Eviction("uid-job3", 1, "cancelled")])

    found = differences(story.changed(sequence, failed))[0]
    assert found.subject == "the record"
    assert (found.recorded, found.replayed) == (
        "releases: uid-job0, attempt 1: failed",
        "releases: uid-job0, attempt 1: succeeded",
    )
    found = differences(story.changed(sequence, unasked))[0]
    assert found.recorded == "evictions: uid-job3, attempt 1, because cancelled"
    assert found.replayed == "evictions: nothing"


def test_another_recovery_is_told(story: Story) -> None:
    places = placement_of(["n3"], [tuple(range(8))], [Run(1, 8)], resource="huawei.com/Ascend910")

    def recovers(record: Round) -> Round:
        step = Recovery(
            "default", "job1", "uid-job1", 1, 1, "CardUnhealthy", "x", "pod", "grace", [1], [1], 9, placement=places
        )
        return msgspec.structs.replace(record, recoveries=[step])

    sequence = max(entry.sequence for entry in story.entries if not entry.subject)
    entries = story.changed(sequence, recovers)
    found = differences(entries)[0]
    assert found.recorded == (
        "recoveries: uid-job1, attempt 1, step 1: grace pod, ranks 1, new places rank 1 on n3, chips 0-7"
    )
    assert found.replayed == "recoveries: nothing"


def test_another_correction_is_told(story: Story) -> None:
    def corrected(record: Round) -> Round:
        return msgspec.structs.replace(record, corrections=[Correction("uid-job3", 1, [0], [[4, 5]])])

    sequence = max(entry.sequence for entry in story.entries if not entry.subject)
    found = differences(story.changed(sequence, corrected))[0]
    assert found.recorded == "corrections: uid-job3, attempt 1: rank 0 has 4,5"
    assert found.replayed == "corrections: nothing"


def test_facts_that_are_missing_are_told_as_such(story: Story) -> None:
    entries = [entry for entry in story.entries if not (entry.subject and entry.sequence == 3)]
    found = differences(entries[:4])[0]
    assert (found.facts_seq, found.facts_given) == (3, 2)
    assert "the recording gives facts up to 2 before it, the record knew 3" in "\n".join(lines_of(found))


def test_behind_a_difference_the_recorded_decision_counts(story: Story) -> None:
    def other(record: Round) -> Round:
        verdict = record.verdicts[0]
        refusal = Refusal(code="no-room")
        return msgspec.structs.replace(
            record, verdicts=[msgspec.structs.replace(verdict, refusal=refusal, placement=None)]
        )

    entries = story.changed(2, other)
    replay = Replay(BEGINNING, differences_max=1)
    for entry in entries[
        : entries.index(next(entry for entry in entries if not entry.subject and entry.sequence == 3))
    ]:
        replay.feed(entry)
    assert replay.state.fold.holdings == {}
    assert (replay.result.differences, len(replay.result.found)) == (1, 1)
    assert replay.result.digest != replay.result.recorded_digest


def test_a_record_that_cannot_be_is_told_by_its_sequence(story: Story) -> None:
    def ghost(record: Round) -> Round:
        return msgspec.structs.replace(record, releases=[Release("ghost", 1, "succeeded")])

    with pytest.raises(
        ReplayError,
        match=r"record 2 cannot be: gang ghost attempt 1: gives back what it does not hold",
    ):
        differences(story.changed(2, ghost))

    entries = list(story.entries)
    index = next(index for index, entry in enumerate(entries) if not entry.subject and entry.sequence == 2)
    kind, version, tree, *more = msgspec.msgpack.decode(entries[index].data)
    tree[5][0][4][3] = b"\x00"  # the chips of the first verdict's placement
    entries[index] = Entry(2, msgspec.msgpack.encode((kind, version, tree, *more)))
    with pytest.raises(ReplayError, match=r"record 2 cannot be: .*chips: 1 are held, the runs ask for 4"):
        differences(rechained(entries))
    with pytest.raises(ReplayError, match=r"record 2 cannot be: sequence 2 came, 1 was next"):
        differences([entry for entry in story.entries if entry.subject or entry.sequence > 1])
    with pytest.raises(ReplayError, match=r"record 1 cannot be: ledger\.round: does not decode"):
        differences([Entry(1, broken(1, FIRST))])
    with pytest.raises(ReplayError, match=r"the start: the folded ledger does not decode"):
        Replay(SnapshotBody(ledger_seq=1, facts_seq=1, facts=[], ledger=b"\xff"))


def test_void_records_are_no_decisions(story: Story) -> None:
    void = Entry(len([entry for entry in story.entries if not entry.subject]) + 1, encode(Round(0, 0, 0, 1, 7)))
    other = Entry(void.sequence + 1, encode(TimerSeen(5)))
    result = see_same([*story.entries, void, other])
    assert result.void == 2


@pytest.mark.parametrize(
    ("kind", "version"), [("ledger.round", Round.VERSION + 1), ("ledger.epoch", Epoch.VERSION + 1), ("ledger.other", 1)]
)
def test_a_record_of_a_newer_release_ends_a_replay(story: Story, kind: str, version: int) -> None:
    last = max(entry.sequence for entry in story.entries if not entry.subject)
    newer = Entry(last + 1, msgspec.msgpack.encode((kind, version, [1, last, 0, 9], "9.7")))
    with pytest.raises(NewerVersionError, match=rf"{kind} of version {version} needs Berth 9\.7 or later"):
        see_same(rechained([*story.entries, newer]))


def test_facts_that_do_not_decode_are_counted() -> None:
    result = see_same([Entry(1, b"\xff", "berth.c.fact.timer"), tick(2)])
    assert (result.facts, result.undecodable) == (2, 1)


def test_a_snapshot_that_does_not_say_who_waits_is_no_start(story: Story) -> None:
    start = story.snapshots[3]
    dump = msgspec.msgpack.decode(start.ledger)
    dump[LedgerDump.__struct_fields__.index("waiting")] = None
    lacking = msgspec.structs.replace(start, ledger=msgspec.msgpack.encode(dump))
    with pytest.raises(ReplayError, match="the start: the snapshot does not contain the jobs that wait"):
        replayed(lacking, entries_after(story.entries, start))


@pytest.mark.parametrize("fault", ["lost", "unheard", "late", "rival", "away"])
async def test_a_record_in_doubt_is_settled_before_anything_else_is_decided(fault: str) -> None:
    cell = await UnreliableCell().open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("waits", chips=8, replicas=3), a_job("first", chips=8), a_job("second", chips=8))
    for _ in range(3):
        await cell.settle()
        await cell.turn()
    await cell.pods("first", PodPhase.SUCCEEDED)
    await cell.settle()
    await cell.turn()
    cell.bus.faults.append(fault)
    await cell.submit(a_job("third", chips=4))
    await cell.settle()
    await cell.turn()  # the round in doubt
    await cell.health("bucket-all", [NodeCondition("b", level=NodeHealth.NO_NEW_WORK)])
    for _ in range(3):
        await cell.settle()
        await cell.turn()
    facts, records = await cell.user.read(StreamName.FACTS), await cell.user.read(StreamName.LEDGER)
    fold = cell.dispatcher.state.fold
    await cell.close()
    assert ("uid-third", 1) in fold.holdings
    assert not cell.dispatcher.has_work
    result = see_same(entries_of(facts, records))
    assert result.void == (fault == "rival")
    third = [record for record in records if b"uid-third" in record.data]
    assert len(third) == 1, "decided once"


def test_a_long_replay_keeps_nothing_of_what_is_over(story: Story) -> None:
    replay = Replay(BEGINNING)
    for entry in story.entries:
        replay.feed(entry)
    pending = replay.scheduler.pending
    assert (pending.jobs_changed, pending.pods_changed) == ({}, {})
