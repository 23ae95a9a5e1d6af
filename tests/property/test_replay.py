"""Whatever happens to a cell, its decisions follow from its facts: a replay makes the same, from the beginning and from
any snapshot.

Turns are cut at random, so are facts between them; dispatchers start anew with other settings, scorers fall silent or
say what is not so, and appends are lost, doubtful, late, or come behind those of another writer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.schemas.envelope import encode
from berth.schemas.facts import TimerSeen
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import StreamName
from tests.support import superpod_worlds, switch_worlds
from tests.support.replays import entries_of, see_same
from tests.support.unreliable_cells import FAULTS, UnreliableCell
from tests.support.worlds import STEPS, Step, World, nodes_of_a_small_cell

SHARDS: Final = (0, 2)
SNAPSHOTS_MAX: Final = 12
POLICIES: Final = ("skip", "skip", "fifo", "easy", "conservative")
Act = Callable[[], Awaitable[None]]


class Turn(msgspec.Struct, frozen=True):
    """What comes before a step."""

    cut: int
    """0: no turn; 1: a turn after everything has arrived; 2 and more: a turn when so many messages have had time to."""
    event: str = ""
    number: int = 0


TURNS = st.lists(
    st.builds(
        Turn,
        cut=st.integers(0, 4),
        event=st.sampled_from(
            ("",) * 8 + ("append", "append", "append", "silent", "heard", "silent", "restart", "tick", "cancel")
        ),
        number=st.integers(0, 30),
    ),
    min_size=8,
    max_size=40,
)


async def happen(cell: UnreliableCell, turn: Turn, other: Sequence[dict[str, Any]]) -> None:
    """Let an event happen, then turn, or not."""
    shard = turn.number % max(cell.config.shards, 1)
    match turn.event:
        case "append":
            cell.bus.faults.append(FAULTS[turn.number % len(FAULTS)])
        case "silent" | "heard" if cell.config.shards:
            cell.missing_shards(shard, is_silent=turn.event == "silent")
        case "restart":
            await cell.restart(**other[turn.number % len(other)])
        case "tick":
            cell.clock.advance(1 + turn.number % 3)
            await cell.user.publish(cell.user.subjects.fact_timer, encode(TimerSeen(cell.clock.now_ms())))
        case "cancel":
            await cell.cancel(f"job{turn.number}")
            await cell.cancel(f"j{turn.number}")
        case _:
            pass
    if turn.cut == 1:
        await cell.settle()
    for _ in range(turn.cut):
        await asyncio.sleep(0)
    if turn.cut:
        await cell.turn()


async def live(
    cell: UnreliableCell, acts: Sequence[Act], turns: Sequence[Turn], other: Sequence[dict[str, Any]]
) -> None:
    """Go through a history, then see that it replays."""
    try:
        for number, act in enumerate(acts):
            await happen(cell, turns[number % len(turns)], other)
            await act()
        await cell.rest()
        facts = await cell.user.read(StreamName.FACTS)
        records = await cell.user.read(StreamName.LEDGER)
    finally:
        await cell.close()
    entries = entries_of(facts, records)
    whole = see_same(entries)
    assert whole.epochs >= 1
    snapshots: list[SnapshotBody] = cell.snapshots
    step = max(1, len(snapshots) // SNAPSHOTS_MAX)
    for start in snapshots[::step]:
        see_same(entries, start)


@pytest.mark.timeout(300)
@given(steps=STEPS, turns=TURNS, shards=st.sampled_from(SHARDS), wary=st.booleans(), policy=st.sampled_from(POLICIES))
def test_a_history_of_chip_jobs_replays(
    steps: list[Step], turns: list[Turn], shards: int, policy: str, *, wary: bool
) -> None:
    queue = {"queue_policy": policy, "reserve_chips": 8, "unknown_run_ms": 5_000}
    ways: list[dict[str, Any]] = [
        {"round_gangs_max": 3, "attempts_max": 2, "needs_health": wary, "tombstone_after_ms": 5_000} | queue,
        {"round_gangs_max": 1, "reference_parity": True, "tombstone_after_ms": 1_000},
        {"round_gangs_max": 50, "health_first": True} | queue,
    ]

    async def work() -> None:
        cell = await UnreliableCell(shards=shards, **ways[0]).open()
        world = World(cell)
        await world.become(nodes_of_a_small_cell())
        acts = [lambda step=step: world.act(step) for step in steps]
        await live(cell, acts, turns, ways)

    asyncio.run(work())


@pytest.mark.timeout(300)
@given(steps=switch_worlds.STEPS, way=switch_worlds.WAYS, turns=TURNS, shards=st.sampled_from(SHARDS))
def test_a_history_of_jobs_with_switch_affinity_replays(
    steps: list[switch_worlds.Step], way: switch_worlds.Way, turns: list[Turn], shards: int
) -> None:
    async def work() -> None:
        cell = await UnreliableCell(shards=shards, **way.settings).open()
        await switch_worlds.begin(cell, way)
        acts = [
            lambda number=number, step=step: switch_worlds.live(cell, step, number, way)
            for number, step in enumerate(steps)
        ]
        await live(cell, acts, turns, [way.settings, way.settings | {"round_gangs_max": 1}])

    asyncio.run(work())


@pytest.mark.timeout(300)
@given(steps=superpod_worlds.STEPS, way=superpod_worlds.WAYS, turns=TURNS, shards=st.sampled_from(SHARDS))
def test_a_history_of_jobs_with_superpod_affinity_replays(
    steps: list[superpod_worlds.Step], way: superpod_worlds.Way, turns: list[Turn], shards: int
) -> None:
    async def work() -> None:
        cell = await UnreliableCell(shards=shards, **way.settings).open()
        await cell.nodes(superpod_worlds.nodes())
        acts = [
            lambda number=number, step=step: superpod_worlds.live(cell, step, number)
            for number, step in enumerate(steps)
        ]
        await live(cell, acts, turns, [way.settings, way.settings | {"round_gangs_max": 20}])

    asyncio.run(work())
