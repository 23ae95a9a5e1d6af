"""Laws of the state: what it is follows from how far facts and ledger went, and from nothing else."""

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.changes import ChangesBuilder
from berth.core.cluster.node_table import NodeTable
from berth.core.state.cell import State
from berth.core.state.invariants import check
from berth.runtime.bus.port import Stored
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import TimerSeen
from berth.schemas.placement import Placement
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.compiled_files import COMPILED_FILES
from tests.support.worlds import STEPS, Step, World, nodes_of_a_small_cell

REPOSITORY = Path(__file__).resolve().parents[2]
COLUMNS = (
    "present",
    "chips",
    "unhealthy",
    "network",
    "withheld",
    "spoken",
    "free",
    "network_known",
    "level",
    "unhealthy_count",
    "allocatable",
    "idle",
    "capacity",
    "cpu_free",
    "memory_free",
    "position",
)
HOLDING = ("used", "releasing")


class History:
    """What a cell stored."""

    def __init__(self, facts: list[Stored], records: list[Stored]) -> None:
        self.facts = facts
        self.records = records


async def _lived(steps: Sequence[Step]) -> History:
    cell = await Cell(round_gangs_max=3, attempts_max=2, tombstone_after_ms=5_000).open()
    world = World(cell)
    await world.begin(nodes_of_a_small_cell())
    await world.live(steps)
    history = History(await cell.user.read(StreamName.FACTS), await cell.user.read(StreamName.LEDGER))
    live = columns_of(cell.dispatcher.state, COLUMNS + HOLDING)
    await cell.close()
    assert columns_of(folded(history), COLUMNS + HOLDING) == live
    return history


@lru_cache(maxsize=400)
def _history(steps: tuple[Step, ...]) -> History:
    return asyncio.run(_lived(steps))


HISTORIES = STEPS.map(tuple).map(_history)


def fact_into(state: State, stored: Stored) -> None:
    assert state.apply_fact(stored.subject, stored.sequence, stored.data).error == ""


def columns_of(state: State, columns: Iterable[str]) -> dict[str, tuple[object, ...]]:
    """Columns by node, for the nodes that a fact covers or that hold something."""
    table = state.table
    found: dict[str, tuple[object, ...]] = {}
    for row, name in enumerate(table.names):
        if not table.present[row]:
            if table.used[row] or table.releasing[row]:
                found[name] = (int(table.used[row] | table.releasing[row]),)
            continue
        found[name] = (
            *(getattr(table, column)[row].item() for column in columns),
            table.domain_name(row),
            table.classes[table.node_class[row]],
            table.superpods[table.superpod[row]] if table.superpod[row] >= 0 else "",
            table.leaves[table.leaf[row]] if table.leaf[row] >= 0 else "",
            repr(state.shares.nodes.get(row)),
        )
    return found


def folded(history: History, order: Sequence[bool] | None = None) -> State:
    """State after a whole history; ``order`` says, message by message, whether a fact or a record comes next."""
    state = State(keeps=True)
    facts, records = list(reversed(history.facts)), list(reversed(history.records))
    for is_fact in order or ():
        if is_fact and facts:
            fact_into(state, facts.pop())
        elif not is_fact and records:
            stored = records.pop()
            state.apply_record(stored.sequence, stored.data)
            check(state)
    for stored in reversed(facts):
        fact_into(state, stored)
    for stored in reversed(records):
        state.apply_record(stored.sequence, stored.data)
    check(state)
    return state


@given(history=HISTORIES, order=st.lists(st.booleans(), max_size=200))
def test_facts_and_records_in_any_order_to_one_another_make_the_same_columns(
    history: History, order: list[bool]
) -> None:
    one, other = folded(history, [False] * len(history.records)), folded(history, order)
    assert columns_of(one, COLUMNS) == columns_of(other, COLUMNS)
    held = {key: one.owned(key) for key in one.fold.holdings}
    assert held == {key: other.owned(key) for key in other.fold.holdings}


@given(history=HISTORIES, order=st.lists(st.booleans(), max_size=200), cut=st.integers(0, 100))
def test_a_snapshot_is_loaded_and_dumped_to_the_same_bytes_and_goes_on_alike(
    history: History, order: list[bool], cut: int
) -> None:
    facts, records = len(history.facts) * cut // 100, len(history.records) * cut // 100
    part = folded(History(history.facts[:facts], history.records[:records]), order)
    raw = part.dump()
    loaded = State(keeps=True)
    loaded.load(decode(raw, SnapshotBody))
    check(loaded)
    assert loaded.dump() == raw
    assert columns_of(loaded, COLUMNS) == columns_of(part, COLUMNS)
    for state in (part, loaded):
        for stored in history.facts[facts:]:
            fact_into(state, stored)
        for stored in history.records[records:]:
            state.apply_record(stored.sequence, stored.data)
        check(state)
    assert loaded.dump() == part.dump()
    assert columns_of(loaded, COLUMNS) == columns_of(part, COLUMNS)


@given(history=HISTORIES)
def test_the_latest_message_of_each_subject_makes_the_same_columns_as_all_messages(history: History) -> None:
    newest = {stored.subject: stored for stored in history.facts}
    latest = State(keeps=True)
    for stored in sorted(newest.values(), key=lambda stored: stored.sequence):
        assert latest.apply_fact(stored.subject, stored.sequence, stored.data, latest=True).error == ""
    for stored in history.records:
        latest.apply_record(stored.sequence, stored.data)
    check(latest)
    whole = folded(history)
    assert columns_of(latest, COLUMNS) == columns_of(whole, COLUMNS)
    assert latest.jobs == whole.jobs
    assert latest.intake_seq == whole.intake_seq


@given(
    holds=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 255), st.integers(0, 5)), max_size=12),
    mask=st.integers(0, 255),
)
def test_what_is_taken_and_given_back_leaves_no_trace(holds: list[tuple[int, int, int]], mask: int) -> None:
    table = NodeTable()
    for name in ("a", "b", "c", "d"):
        table.row(name)
    table.chips[:4] = 255
    for row, wanted, cpu in holds:
        table.hold(ChangesBuilder(), row, wanted & ~int(table.used[row]), cpu_milli=cpu, memory_mib=cpu * 7)
    for row in range(4):
        before = {name: getattr(table, name)[:4].copy() for name in (*COLUMNS, *HOLDING)}
        free = mask & ~int(table.used[row])
        table.hold(ChangesBuilder(), row, free, cpu_milli=5, memory_mib=3)
        table.mark_releasing(ChangesBuilder(), row, free, releasing=True)
        table.mark_releasing(ChangesBuilder(), row, free, releasing=False)
        table.let_go(ChangesBuilder(), row, free, cpu_milli=5, memory_mib=3)
        assert all(np.array_equal(getattr(table, name)[:4], column) for name, column in before.items())


async def _placements(names: dict[str, str], steps: Sequence[Step]) -> list[tuple[str, list[str], bytes]]:
    """Placements of a cell whose nodes are called by ``names``."""
    cell = await Cell().open()
    nodes = nodes_of_a_small_cell().values()
    await cell.nodes([a_node(names[node.name], node.product, labels=node.labels) for node in nodes])
    world = World(cell)
    for step in steps:
        if step.verb == "submit" and not step.flag:
            await world.act(step)
    await cell.turns(2)
    fold = cell.dispatcher.state.fold
    found: list[tuple[str, Placement]] = [(uid, holding.placement) for (uid, _), holding in fold.holdings.items()]
    await cell.close()
    return [(uid, placement.names(), placement.chips) for uid, placement in found]


@settings(max_examples=25)
@given(steps=STEPS, gaps=st.lists(st.integers(1, 9), min_size=24, max_size=24))
def test_new_names_in_the_same_order_only_rename_the_answer(steps: list[Step], gaps: list[int]) -> None:
    old = sorted(nodes_of_a_small_cell())
    new = [f"node-{sum(gaps[: index + 1]):04d}" for index in range(len(old))]
    same = asyncio.run(_placements(dict(zip(old, old, strict=True)), steps))
    other = asyncio.run(_placements(dict(zip(old, new, strict=True)), steps))
    back = dict(zip(new, old, strict=True))
    assert same == [(uid, [back[name] for name in names], chips) for uid, names, chips in other]


SCENARIO = """
import asyncio, zlib
from tests.support.cells import Cell
from tests.support.worlds import Step, World, nodes_of_a_small_cell
async def main():
    cell = await Cell(shards=2, round_gangs_max=3).open()
    world = World(cell)
    await world.begin(nodes_of_a_small_cell())
    verbs = ("submit", "submit", "submit", "health", "nodes", "ended", "foreign", "cancel", "bind-failed")
    await world.live([Step(verbs[n * 5 % 9], n * 7 % 41, n * 11 % 37, n * 13 % 31, n % 3 == 0) for n in range(60)])
    print("digest", zlib.crc32(b"".join(await cell.ledger())), zlib.crc32(cell.dispatcher.state.dump()), flush=True)
    await cell.close()
asyncio.run(main())
"""


def test_the_ledger_is_the_same_under_any_seed_of_hashes() -> None:
    found = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(  # noqa: S603  # our own interpreter and text
            [sys.executable, "-c", SCENARIO],
            cwd=REPOSITORY,
            env={**COMPILED_FILES, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(next(line for line in done.stdout.splitlines() if line.startswith("digest")))
    assert len(found) == 1


@pytest.mark.parametrize("shards", [0, 3])
async def test_a_dispatcher_that_starts_anew_knows_what_the_old_one_knew(shards: int) -> None:
    cell = await Cell(shards=shards).open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(*(a_job(f"job{number}", chips=4, replicas=1 + number % 2) for number in range(6)))
    await cell.turns(3)
    before = columns_of(cell.dispatcher.state, COLUMNS + HOLDING)
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.turns(2)
    assert columns_of(cell.dispatcher.state, COLUMNS + HOLDING) == before
    await cell.close()


def test_a_tick_is_no_part_of_a_snapshot() -> None:
    state = State(keeps=True)
    state.apply_fact("berth.cell.fact.timer", 1, encode(TimerSeen(5)))
    assert decode(state.dump(), SnapshotBody).facts == []
    assert state.time_ms == 5
