"""States of leaf switches: the same after a start at any time, and gangs that wait for leaves wake when it helps."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.node_packing import SWITCHES
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.runtime.instruments import Instruments
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import Leaf, OutcomeSeen, PodPhase, PodsSeen, TopologySeen
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.offers import Advance
from berth.services.scorer.loop import Shard
from berth.services.scorer.metrics import ScorerMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus

LEAVES: Final = 5
PLACES: Final = 4
SHARDS: Final = 3
LABELS: Final = ("normal-schema", "large-model-schema")
PHASES: Final = (PodPhase.RUNNING, PodPhase.TERMINATING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE)
VERBS: Final = (
    *("job", "job", "job", "job", "plain", "pods", "pods", "ended", "cancel", "unbound"),
    *("leaves", "bad leaves", "foreign", "health", "shard", "snapshot", "epoch"),
)


class Step(msgspec.Struct, frozen=True):
    """Something that happens."""

    verb: str
    one: int
    two: int


NUMBERS = st.sampled_from(range(100))
STEPS = st.lists(
    st.builds(Step, verb=st.sampled_from(VERBS), one=NUMBERS, two=NUMBERS),
    min_size=30,
    max_size=60,
)


def nodes() -> list[NodeDescription]:
    return [
        a_node(f"n{leaf}{place}", superpod=f"pod{(leaf * PLACES + place * 3) % 7}")
        for leaf in range(LEAVES)
        for place in range(PLACES)
    ]


def topology(step: Step) -> TopologySeen:
    """Leaves whose order, names and nodes follow from a step; now and then none, or a place without a node."""
    names = [f"n{number // PLACES}{number % PLACES}" for number in range(LEAVES * PLACES)]
    names = names[step.one % 7 :] + names[: step.one % 7]
    if step.two % 5 == 0:
        names[step.two % len(names)] = ""
    leaves = [
        Leaf(f"leaf{leaf}" if step.two % 3 else f"other{leaf}", "", names[leaf * PLACES : (leaf + 1) * PLACES])
        for leaf in range(LEAVES)
    ]
    order = leaves[step.two % LEAVES :] + leaves[: step.two % LEAVES]
    if step.verb == "bad leaves":
        order.append(order[0])
    return TopologySeen(SWITCHES, order if step.one % 10 else [], places=PLACES)


def alien(step: Step) -> PodsSeen:
    """Pods of another scheduler, or that they are gone."""
    phases = [PHASES[step.two % 2]] * (step.two % 3)
    rows = len(phases)
    return PodsSeen(
        "other",
        "alien",
        "alien",
        0,
        pack(range(rows), 4),
        pack_names([f"n{step.one % LEAVES}0"] if rows else []),
        pack([0] * rows, 4),
        pack(phases, 1),
        pack([1 << row for row in range(rows)], 8),
        resource="huawei.com/Ascend910",
        foreign=True,
        tor_affinity=("", *LABELS)[step.one % 3],
        leaf_states=bytes((0, 1, 2, 5)[(step.one + row) % 4] for row in range(rows)),
    )


class History:
    """A cell that lives through steps, and shards that start in the midst of it."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._late: list[Shard] = []

    async def live(self, step: Step, number: int) -> None:
        cell, subjects = self.cell, self.cell.user.subjects
        held = sorted(h.name for h in cell.dispatcher.state.fold.holdings.values() if not h.foreign)
        name = held[step.one % len(held)] if held else ""
        match step.verb:
            case "job":
                labels = {"tor-affinity": LABELS[step.two % 2]}
                await cell.submit(a_job(f"j{number}", chips=8, replicas=1 + step.one % 12, labels=labels))
            case "plain":
                await cell.submit(a_job(f"j{number}", chips=(1, 4, 8)[step.one % 3], replicas=1 + step.two % 3))
            case "leaves" | "bad leaves":
                await cell.user.publish(subjects.fact_topology(SWITCHES), encode(topology(step)))
            case "foreign":
                await cell.user.publish(subjects.fact_pod("other", "alien"), encode(alien(step)))
            case "health":
                node = nodes()[step.one % (LEAVES * PLACES)]
                await cell.health(f"superpod-{node.superpod}", [NodeCondition(node.name, unhealthy=step.two % 2)])
            case "snapshot":
                await cell.dispatcher.snapshots.write()
            case "shard":
                await self._start(step.one % SHARDS)
            case "epoch":
                await self.reign_anew()
            case _:
                if name:
                    await self._end(step, name)

    async def _end(self, step: Step, name: str) -> None:
        """Something becomes of a job that holds chips."""
        cell = self.cell
        state = cell.dispatcher.state
        holding = next(h for h in state.fold.holdings.values() if h.name == name)
        if step.verb == "cancel":
            await cell.cancel(name)
        elif step.verb == "unbound":
            outcome = OutcomeSeen("default", name, holding.uid, holding.attempt, "failed")
            await cell.user.publish(cell.user.subjects.fact_outcome("default", name), encode(outcome))
        elif ("default", name) in state.jobs and state.jobs["default", name].uid == holding.uid:
            pods = range(holding.placement.pods())
            running = step.two % len(pods) if step.verb == "pods" else 0
            ended = PHASES[step.one % len(PHASES)] if step.verb == "pods" else PodPhase.SUCCEEDED
            phases = [PodPhase.RUNNING if rank < running else ended for rank in pods]
            await cell.pods(name, *phases)

    async def _start(self, number: int) -> None:
        bus = FakeBus(self.cell.server, self.cell.cell)
        self.cell.buses.append(bus)
        shard = Shard(bus, self.cell.clock, shard=number, shards=SHARDS, instruments=Instruments.make(ScorerMetrics))
        await shard.start()
        self._late.append(shard)

    async def reign_anew(self) -> None:
        """Another dispatcher with the same settings."""
        await self.cell.dispatcher.stop()
        await self.cell.start_dispatcher()

    async def compare(self) -> None:
        """See that all shards know the leaves as the dispatcher does."""
        state = self.cell.dispatcher.state
        for shard in [*self.cell.shards, *self._late]:
            await shard.advance(self._advance())
            other = shard.state
            assert (other.nodes_seq, other.fold.head) == (state.nodes_seq, state.fold.head)
            assert (leaf_index_of(other.indexes).leaves.names, leaf_index_of(other.indexes).leaves.node_names) == (
                leaf_index_of(state.indexes).leaves.names,
                leaf_index_of(state.indexes).leaves.node_names,
            )
            if not leaf_index_of(state.indexes).occupancy.follows_pods:
                assert (
                    leaf_index_of(other.indexes).occupancy.bits().tolist()
                    == leaf_index_of(state.indexes).occupancy.bits().tolist()
                )

    def _advance(self) -> bytes:
        state = self.cell.dispatcher.state
        return encode(Advance(state.fold.epoch, state.nodes_seq, state.fold.head))

    async def turns_until_quiet(self) -> Sequence[tuple[str, int]]:
        """Turn until no record is appended; who holds chips then.

        Raises:
            AssertionError: There is no end to it.
        """
        quiet = 0
        for _ in range(90):
            await self.cell.settle()
            quiet = 0 if await self.cell.dispatcher.turn() else quiet + 1
            if quiet == 4:  # what a turn says comes back in the next
                return sorted(self.cell.dispatcher.state.fold.holdings)
        raise AssertionError("records without end")


async def tell(steps: list[Step], *, version: str, parity: bool) -> None:
    cell = await Cell(shards=SHARDS, round_gangs_max=3, nslb_version=version, reference_parity=parity).open()
    try:
        history = History(cell)
        await cell.nodes(nodes())
        await history.live(Step("leaves", 7, 2), -1)
        for number, step in enumerate(steps):
            await history.live(step, number)
            if step.one % 2:
                await cell.turns()
                await history.compare()
        before = await history.turns_until_quiet()
        await history.compare()
        await history.reign_anew()  # tries every gang anew
        assert await history.turns_until_quiet() == before
        await history.compare()
        assert not any(shard.late for shard in cell.shards)
    finally:
        await cell.close()


@pytest.mark.timeout(120)
@given(steps=STEPS, version=st.sampled_from(("1.0", "2.0")), parity=st.sampled_from((False, False, True)))
def test_whoever_starts_whenever_knows_the_same_and_nobody_sleeps_too_long(
    steps: list[Step],
    version: str,
    parity: bool,  # noqa: FBT001 - drawn
) -> None:
    asyncio.run(tell(steps, version=version, parity=parity))
