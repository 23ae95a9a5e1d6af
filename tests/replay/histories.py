"""The recordings beside this file, made by real dispatchers and scorers on a bus in memory.

``python -m tests.replay.histories`` writes those that are not there. Until 0.5.0 is tagged, they are made anew when a
decision or a format changes.
"""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from berth.core.state.ledger import LedgerDump
from berth.formats.recordings.recording import frames_of
from berth.runtime.config import LogConfig
from berth.runtime.logs import configure
from berth.runtime.release import release
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth, PodPhase, TimerSeen
from berth.schemas.ledger import Settings
from berth.schemas.nodes import NodeCondition
from berth.schemas.recording import BEGINNING, RecordingHead
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import StreamName
from tests.support import superpod_worlds, switch_worlds
from tests.support.cells import a_job, a_node
from tests.support.recovering_worlds import VERBS, RecoveringWorld
from tests.support.replays import entries_after, entries_of
from tests.support.unreliable_cells import FAULTS, UnreliableCell
from tests.support.worlds import Step, World, nodes_of_a_small_cell

FOLDER: Final = Path(__file__).parent
RELEASE: Final = "v0.5"
_VERBS: Final = (
    ("submit",) * 8
    + ("ended",) * 4
    + ("health", "cancel", "terminating", "bound", "bind-failed", "evicted", "nodes", "foreign", "time")
)
History = Callable[[], Awaitable[UnreliableCell]]


def chip_steps(seed: int, count: int) -> list[Step]:
    """Steps of a history of chip jobs."""
    chance = random.Random(seed)  # noqa: S311  # the same steps each time
    steps = []
    for _ in range(count):
        one, two, three = (chance.randint(0, 40) for _ in range(3))
        steps.append(Step(chance.choice(_VERBS), one, two, three, chance.random() < 0.5))
    return steps


async def _turns(cell: UnreliableCell, count: int = 1) -> None:
    for _ in range(count):
        await cell.settle()
        await cell.turn()
    await cell.settle()


async def chips() -> UnreliableCell:
    """Jobs of seven products; nodes that fall ill, come and go; pods of others; cancelled and unbindable jobs."""
    cell = await UnreliableCell(round_gangs_max=4, attempts_max=2, tombstone_after_ms=5_000).open()
    world = World(cell)
    await world.become(nodes_of_a_small_cell())
    for number, step in enumerate(chip_steps(1, 400)):
        await world.act(step)
        if number % 3:
            await _turns(cell)
    await cell.rest()
    return cell


async def refusals() -> UnreliableCell:
    """More jobs than room: they wait asleep, wake when something helps, and are refused with other numbers."""
    return await _crowded(UnreliableCell())


async def _crowded(crowded: UnreliableCell) -> UnreliableCell:
    cell = await crowded.open()
    await cell.nodes([a_node(f"n{number}") for number in range(6)])
    await _turns(cell)
    for number in range(60):
        await cell.submit(a_job(f"job{number:02}", chips=(8, 4, 2, 1)[number % 4], replicas=1 + number % 5))
        if number % 2:
            await _turns(cell)
        placed = sorted(holding.name for holding in cell.dispatcher.state.fold.holdings.values())
        if number % 5 == 4 and placed:
            await cell.pods(placed[number * 7 % len(placed)], PodPhase.SUCCEEDED)
        if number % 9 == 8:
            level = (NodeHealth.OK, NodeHealth.NO_NEW_WORK)[number % 2]
            await cell.health("ungrouped-0", [NodeCondition(f"n{number % 6}", level=level)])
        if number % 11 == 10:
            await cell.cancel(f"job{number - 3:02}")
        cell.clock.advance(0.25)
    for _ in range(30):
        placed = sorted(holding.name for holding in cell.dispatcher.state.fold.holdings.values())
        for name in placed[:2]:
            await cell.pods(name, PodPhase.SUCCEEDED)
        await _turns(cell, 2)
    return cell


def _queue(policy: str) -> History:
    """The same under a policy of the queue; jobs of 16 chips and more are large."""

    async def made() -> UnreliableCell:
        return await _crowded(
            UnreliableCell(queue_policy=policy, reserve_chips=16, reserve_depth=4, unknown_run_ms=3_000)
        )

    return made


def _switches(policy: str, *, is_single_layer: bool, seed: int) -> History:
    async def work() -> UnreliableCell:
        way = switch_worlds.Way(policy, 2, parity=False, is_single_layer=is_single_layer)
        cell = await UnreliableCell(**way.settings).open()
        await switch_worlds.begin(cell, way)
        chance = random.Random(seed)  # noqa: S311  # the same steps each time
        verbs = ("common", "common", "model", "model", "plain", "ended", "ended", "ended", "health", "leaves")
        for number in range(120):
            step = switch_worlds.Step(chance.choice(verbs), chance.randint(0, 30), chance.randint(0, 30))
            await switch_worlds.live(cell, step, number, way)
            if number % 2:
                await _turns(cell)
        await cell.rest()
        return cell

    return work


async def superpods() -> UnreliableCell:
    """Jobs with SuperPoD affinity of all variants, and groups of several levels."""
    way = superpod_worlds.Way(reserve=1, size=8, parity=False)
    cell = await UnreliableCell(**way.settings).open()
    await cell.nodes(superpod_worlds.nodes())
    chance = random.Random(5)  # noqa: S311  # the same steps each time
    for number in range(120):
        verb = chance.choice((*superpod_worlds.VERBS, "ended"))
        await superpod_worlds.live(
            cell, superpod_worlds.Step(verb, chance.randint(0, 30), chance.randint(0, 30)), number
        )
        if number % 2:
            await _turns(cell)
    await cell.rest()
    return cell


async def restarts() -> UnreliableCell:
    """New epochs, some with other settings, while jobs wait asleep."""
    ways: list[dict[str, Any]] = [
        {"round_gangs_max": 2},
        {"round_gangs_max": 5, "reference_parity": True},
        {"round_gangs_max": 3, "health_first": True, "needs_health": True},
    ]
    cell = await UnreliableCell(**ways[0]).open()
    world = World(cell)
    await world.become(nodes_of_a_small_cell())
    for number, step in enumerate(chip_steps(2, 200)):
        await world.act(step)
        if number % 4:
            await _turns(cell)
        if number % 25 == 24:
            await cell.restart(**ways[number // 25 % len(ways)])
    await cell.rest()
    return cell


async def missing_shards() -> UnreliableCell:
    """Scorers that do not answer, below leaf switches."""
    way = switch_worlds.Way("1.0", 2, parity=False, is_single_layer=False)
    cell = await UnreliableCell(shards=3, **way.settings).open()
    await switch_worlds.begin(cell, way)
    chance = random.Random(7)  # noqa: S311  # the same steps each time
    verbs = ("common", "model", "plain", "plain", "ended", "ended", "health")
    for number in range(100):
        step = switch_worlds.Step(chance.choice(verbs), chance.randint(0, 30), chance.randint(0, 30))
        await switch_worlds.live(cell, step, number, way)
        cell.missing_shards(number % 3, is_silent=chance.random() < 0.5)
        if number % 10 == 9:
            cell.clock.advance(2)
            await cell.user.publish(cell.user.subjects.fact_timer, encode(TimerSeen(cell.clock.now_ms())))
        await _turns(cell)
    await cell.rest()
    return cell


async def doubts() -> UnreliableCell:
    """Appends that are lost, late, unheard, or behind the void record of another writer."""
    cell = await UnreliableCell(shards=2, round_gangs_max=3, attempts_max=2).open()
    world = World(cell)
    await world.become(nodes_of_a_small_cell())
    for number, step in enumerate(chip_steps(3, 200)):
        await world.act(step)
        if number % 3 == 0:
            cell.bus.faults.append(FAULTS[number // 3 % len(FAULTS)])
        await _turns(cell)
    await cell.rest()
    return cell


def _recoveries(product: str, *, shards: int = 0, **faults: Any) -> History:  # noqa: ANN401  # fields of the settings
    async def work() -> UnreliableCell:
        config = msgspec.structs.replace(RecoveringWorld.FAULTS, **faults)
        cell = await UnreliableCell(shards=shards, faults=config).open()
        world = RecoveringWorld(cell, product)
        await world.begin()
        chance = random.Random(len(product))  # noqa: S311  # the same steps each time
        for number in range(160):
            await world.act(chance.choice(VERBS), chance.randint(0, 40), chance.randint(0, 40))
            if shards:
                cell.missing_shards(number % shards, is_silent=chance.random() < 0.3)
            await _turns(cell, 2)
        await cell.rest()
        return cell

    return work


HISTORIES: Final[dict[str, tuple[History, bool]]] = {
    "chips": (chips, False),
    "refusals": (refusals, False),
    "refusals-from-a-snapshot": (refusals, True),
    "queue-fifo": (_queue("fifo"), False),
    "queue-fifo-from-a-snapshot": (_queue("fifo"), True),
    "queue-easy": (_queue("easy"), False),
    "queue-easy-from-a-snapshot": (_queue("easy"), True),
    "queue-conservative": (_queue("conservative"), False),
    "queue-conservative-from-a-snapshot": (_queue("conservative"), True),
    "switches-1.0": (_switches("1.0", is_single_layer=False, seed=11), False),
    "switches-2.0": (_switches("2.0", is_single_layer=False, seed=12), False),
    "switches-single-layer": (_switches("1.0", is_single_layer=True, seed=13), False),
    "superpods": (superpods, False),
    "restarts": (restarts, False),
    "restarts-from-a-snapshot": (restarts, True),
    "silence": (missing_shards, False),
    "doubts": (doubts, False),
}
"""How each recording is made, and whether it begins at a snapshot inside an epoch with most classes asleep."""
WITH_FAULTS: Final[dict[str, tuple[History, bool]]] = {
    "recoveries-below-leaves": (_recoveries("module910bx8"), False),
    "recoveries-in-racks": (_recoveries("superpod950x8", plan_before_delete=False), False),
    "recoveries-in-racks-from-a-snapshot": (_recoveries("superpod950x8"), True),
    "recoveries-in-superpods": (_recoveries("superpod910a3x16"), False),
    "recoveries-with-silent-shards": (_recoveries("module910bx8", shards=3), False),
}
"""The same for those with faults of jobs; a snapshot is one with most gangs that recover."""


def sleepiest(snapshots: Sequence[SnapshotBody]) -> SnapshotBody:
    """Of the middle half of the snapshots the first with the most sleeping classes."""
    return max(snapshots[len(snapshots) // 4 : 3 * len(snapshots) // 4], key=_asleep)


def _asleep(body: SnapshotBody) -> int:
    dump = msgspec.msgpack.decode(body.ledger, type=LedgerDump)
    return len(dump.waiting.sleeping) if dump.waiting is not None else 0


def most_recovering(snapshots: Sequence[SnapshotBody]) -> SnapshotBody:
    """Of the snapshots the first with the most ranks that leave or wait for a place."""
    return max(snapshots, key=_recovering)


def _recovering(body: SnapshotBody) -> int:
    dump = msgspec.msgpack.decode(body.ledger, type=LedgerDump)
    return sum(len(one.leaving()) + len(one.unplaced) for one in dump.holdings)


async def recorded(history: History, *, from_snapshot: bool, recovers: bool = False) -> bytes:
    """Bytes of the recording of a history."""
    cell = await history()
    facts = await cell.user.read(StreamName.FACTS)
    records = await cell.user.read(StreamName.LEDGER)
    await cell.close()
    entries = entries_of(facts, records)
    start = (most_recovering if recovers else sleepiest)(cell.snapshots) if from_snapshot else BEGINNING
    head = RecordingHead(
        release=release(),
        cell="cell",
        made_at_ms=cell.clock.now_ms(),
        settings=Settings(),
        start=start,
    )
    return b"".join(frames_of(head, entries_after(entries, start)))


def main() -> None:
    """Write the recordings that are not there."""
    configure("histories", LogConfig(level="error"))
    for name, (history, from_snapshot) in HISTORIES.items():
        _write(FOLDER / RELEASE / f"{name}.berthlog", recorded(history, from_snapshot=from_snapshot))
    for name, (history, from_snapshot) in WITH_FAULTS.items():
        _write(FOLDER / RELEASE / f"{name}.berthlog", recorded(history, from_snapshot=from_snapshot, recovers=True))


def _write(path: Path, making: Coroutine[Any, Any, bytes]) -> None:
    if path.exists():
        making.close()
        return
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(asyncio.run(making))
    sys.stdout.write(f"{path.relative_to(FOLDER)}: {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
