"""Jobs by leaf switch, in SuperPoDs and in racks recover: the same record for all shard counts, also when replayed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from berth.core.state.ledger import Holding
from berth.formats.recordings.recording import read
from berth.runtime.recording import When, record
from berth.schemas.columns import pack
from berth.schemas.envelope import body_of, encode, open_envelope
from berth.schemas.facts import Leaf, PodPhase, TopologySeen
from berth.schemas.fault_facts import GroupSeen, ReplacementsSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Round
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.recovery import Recovery
from tests.support.cells import Cell, a_job, a_node
from tests.support.replays import see_same


class Kind(NamedTuple):
    """A cluster, a job that fills a part of it, and what becomes of the faults of its last rank.

    Attributes:
        domain: Domain of facts about the last rank's node.
        steps: Scope, way and ranks of each step.
    """

    nodes: list[NodeDescription]
    job: JobRequest
    domain: str
    steps: list[tuple[str, str, list[int]]]
    leaves: Sequence[Leaf] = ()


def _in_blocks(product: str, replicas: int, **annotations: str) -> JobRequest:
    job = a_job("j", product=product, chips=_CHIPS[product], replicas=replicas)
    told = {name.replace("_", "-"): value for name, value in annotations.items()}
    return a_job("j", product=product, chips=_CHIPS[product], replicas=replicas, annotations=job.annotations | told)


_CHIPS: Final = {"superpod910a3x16": 16, "superpod950x8": 8}
KINDS: Final = {
    "switch": Kind(
        [a_node(f"n{number:02}", leaf=f"l{number // 4}", position=number % 4) for number in range(12)],
        a_job("j", chips=8, replicas=6, labels={"tor-affinity": "large-model-schema"}),
        "leaf-l1",
        [("pod", "grace", [5])],
        [Leaf(f"l{leaf}", f"10.0.0.{leaf}", [f"n{leaf * 4 + place:02}" for place in range(4)]) for leaf in range(3)],
    ),
    "superpod": Kind(
        [a_node(f"n{number:02}", "superpod910a3x16", superpod=str(number // 6)) for number in range(12)],
        _in_blocks("superpod910a3x16", 8, sp_block="32"),
        "superpod-1",
        [("pod", "grace", [7])],
    ),
    "rack": Kind(
        [a_node(f"n{number}", "superpod950x8", superpod="0", rack=str(number // 4)) for number in range(8)],
        _in_blocks("superpod950x8", 4, sp_block="16", ra_block="16"),
        "superpod-0",
        [("pod", "grace", [3]), ("rank-block", "grace", [2, 3])],
    ),
}
DECISIONS: Final[Mapping[str, Any]] = {"nslb_version": "2.0", "shared_tor_num": 1, "super_pod_size": 8}
LABELS: Final = {"fault-scheduling": "grace", "pod-rescheduling": "on"}


class Story:
    """A job that loses the node of its last rank; controllers and kubelets do what they are to."""

    def __init__(self, kind: str, shards: int) -> None:
        self.kind = KINDS[kind]
        self.waiting: set[int] = set()
        self.cell = Cell(shards=shards, **DECISIONS)

    @property
    def holding(self) -> Holding:
        (found,) = self.cell.dispatcher.state.fold.holdings.values()
        return found

    async def begin(self) -> None:
        """The job runs."""
        cell, subjects = await self.cell.open(), self.cell.user.subjects
        await cell.nodes(self.kind.nodes)
        if self.kind.leaves:
            fact = TopologySeen("switch", list(self.kind.leaves), level="double_layer", places=4)
            await cell.user.publish(subjects.fact_topology("switch"), encode(fact))
        await cell.submit(self.kind.job)
        group = GroupSeen("default", "pg", labels=LABELS, jobs=["j"], at_ms=cell.clock.now_ms())
        await cell.user.publish(subjects.fact_group("default", "pg"), encode(group))
        await cell.turns(3)
        await cell.pods("j", PodPhase.RUNNING)
        await cell.turns(2)

    async def break_last(self) -> None:
        """A chip of the node of the last rank breaks."""
        await self.cell.health(self.kind.domain, [NodeCondition(self.holding.placement.names()[-1], unhealthy=1)])
        await self.cell.turns(2)

    async def go_on(self, times: int) -> None:
        """Pods that leave are gone, new ones wait, and those with a place run; a second and a half each time."""
        cell = self.cell
        for _ in range(times):
            holding = self.holding
            pods = len(holding.placement.names())
            left = {*holding.leaving(), *holding.unplaced}
            phases = [PodPhase.GONE if rank in left else PodPhase.RUNNING for rank in range(pods)]
            await cell.pods("j", *phases, steps=[holding.step_of(rank) for rank in range(pods)])
            if left != self.waiting:
                self.waiting = left
                waiting = ReplacementsSeen("default", "j", "uid-j", pack(sorted(left), 4), cell.clock.now_ms())
                await cell.user.publish(cell.user.subjects.fact_replacement("default", "j"), encode(waiting))
            await cell.turns(2)
            cell.clock.advance(1.5)
            await cell.turns(1)

    async def rounds(self) -> list[Round]:
        envelopes = [open_envelope(data) for data in await self.cell.ledger()]
        return [body_of(envelope, Round) for envelope in envelopes if envelope.kind == Round.KIND]

    async def steps(self) -> list[Recovery]:
        return [step for found in await self.rounds() for step in found.recoveries]


async def recovered(kind: str, shards: int) -> Story:
    story = Story(kind, shards)
    await story.begin()
    await story.break_last()
    await story.go_on(8)
    return story


@pytest.mark.parametrize("kind", KINDS)
async def test_shard_counts_write_equal_ledgers(kind: str) -> None:
    ledgers: list[list[bytes]] = []
    for shards in (0, 1, 3, 8):
        story = await recovered(kind, shards)
        ledgers.append([encode(found) for found in await story.rounds()])
        steps = [(step.scope, step.how, step.ranks) for step in await story.steps() if step.how != "place"]
        assert steps == story.kind.steps
        holding = story.holding
        assert (holding.moves, holding.unplaced, holding.gone) == ([], [], [])
        await story.cell.close()
    assert all(ledger == ledgers[0] for ledger in ledgers)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_recording_with_faults_replays_from_the_beginning_and_from_a_snapshot_in_the_middle(
    kind: str, tmp_path: Path
) -> None:
    story = Story(kind, 0)
    await story.begin()
    await story.break_last()
    cell, path = story.cell, tmp_path / "cell.berthlog"
    await story.go_on(8)
    await record(cell.user, cell.clock, path)
    whole = read([path.read_bytes()])
    told = see_same(list(whole), whole.head.start)
    assert told.rounds == len(await story.rounds())

    await story.break_last()
    await cell.dispatcher.snapshots.write()
    middle = cell.dispatcher.state.fold.head
    assert story.holding.moves or story.holding.unplaced, "the snapshot is taken in the middle of a recovery"
    await story.go_on(8)
    await record(cell.user, cell.clock, path, since=When(ledger_seq=middle + 1))
    rest = read([path.read_bytes()])
    assert rest.head.start.ledger_seq == middle
    assert see_same(list(rest), rest.head.start).rounds > 0
    assert (story.holding.moves, story.holding.unplaced) == ([], [])
    await cell.close()
