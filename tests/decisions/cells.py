"""Decisions of real dispatchers and scorers on a bus in memory: the histories of the recordings, and more by seeds."""

import asyncio
import functools
import random
from collections.abc import Iterator
from typing import Any, Final

from berth.core.state.cell import State
from berth.schemas.envelope import decode, open_envelope
from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Round
from berth.schemas.subjects import StreamName
from tests.decisions.text import line_of_job, lines_of
from tests.replay import histories as recorded
from tests.support import superpod_worlds, switch_worlds
from tests.support.recovering_worlds import VERBS, RecoveringWorld
from tests.support.unreliable_cells import UnreliableCell
from tests.support.worlds import World, nodes_of_a_small_cell

_PRODUCTS: Final = ("module910bx8", "superpod950x8", "superpod910a3x16")
_OF_SWITCHES: Final = ("common", "common", "model", "model", "plain", "ended", "ended", "ended", "health", "leaves")
_POLICIES: Final = ("skip", "easy")
_QUEUE: Final = {"reserve_chips": 16, "reserve_depth": 4, "unknown_run_ms": 3_000}


def recordings() -> Iterator[tuple[str, list[str]]]:
    """Name and lines of the history of each recording; of one that begins at a snapshot the history is another's."""
    for name, (history, from_snapshot) in (recorded.HISTORIES | recorded.WITH_FAULTS).items():
        if not from_snapshot or name == "recoveries-in-racks-from-a-snapshot":
            yield f"recording {name}", asyncio.run(_lived(history))


def histories(first: int, count: int) -> Iterator[tuple[str, list[str]]]:
    """Name and lines of each history: the worlds of property tests in turn, each seed under ``skip`` and ``easy``.

    Of one seed one of the two has shards.
    """
    for seed in range(first, first + count):
        for number, policy in enumerate(_POLICIES):
            shards = (1, 2, 3)[seed % 3] if (seed + number) % 2 else 0
            world = _WORLDS[seed % len(_WORLDS)]
            history = functools.partial(world, seed, policy, shards)
            yield f"cell {seed} {policy} {shards} shards", asyncio.run(_lived(history))


async def _lived(history: recorded.History) -> list[str]:
    cell = await history()
    facts = await cell.user.read(StreamName.FACTS)
    records = await cell.user.read(StreamName.LEDGER)
    await cell.close()
    jobs = (open_envelope(fact.data) for fact in facts)
    lines = [line_of_job(decode(one.encode(), JobSeen)) for one in jobs if one.kind == JobSeen.KIND]
    state = State()
    for stored in records:
        folded = state.apply_record(stored.sequence, stored.data)
        if folded.void or folded.epoch:
            lines.append("void" if folded.void else "epoch")
        else:
            lines += lines_of(decode(stored.data, Round))
    return lines


async def _chips(seed: int, policy: str, shards: int) -> UnreliableCell:
    settings = {"round_gangs_max": 4, "attempts_max": 2, "tombstone_after_ms": 5_000}
    cell = await _opened(policy, shards, settings)
    world = World(cell)
    await world.become(nodes_of_a_small_cell())
    for number, step in enumerate(recorded.chip_steps(seed, 60)):
        await world.act(step)
        if number % 3:
            await _turned(cell)
    await cell.rest()
    return cell


async def _switches(seed: int, policy: str, shards: int) -> UnreliableCell:
    chance = _chance(seed)
    version = chance.choice(("1.0", "2.0"))
    way = switch_worlds.Way(version, 2, parity=chance.random() < 0.2, is_single_layer=chance.random() < 0.3)
    cell = await _opened(policy, shards, way.settings)
    await switch_worlds.begin(cell, way)
    for number in range(40):
        step = switch_worlds.Step(chance.choice(_OF_SWITCHES), chance.randint(0, 30), chance.randint(0, 30))
        await switch_worlds.live(cell, step, number, way)
        if number % 2:
            await _turned(cell)
    await cell.rest()
    return cell


async def _superpods(seed: int, policy: str, shards: int) -> UnreliableCell:
    chance = _chance(seed)
    way = superpod_worlds.Way(chance.choice((0, 1)), chance.choice((4, 8, 48)), parity=chance.random() < 0.2)
    cell = await _opened(policy, shards, way.settings)
    await cell.nodes(superpod_worlds.nodes())
    for number in range(40):
        verb = chance.choice((*superpod_worlds.VERBS, "ended"))
        step = superpod_worlds.Step(verb, chance.randint(0, 30), chance.randint(0, 30))
        await superpod_worlds.live(cell, step, number)
        if number % 2:
            await _turned(cell)
    await cell.rest()
    return cell


async def _recoveries(seed: int, policy: str, shards: int) -> UnreliableCell:
    chance = _chance(seed)
    cell = await _opened(policy, shards, {})
    world = RecoveringWorld(cell, _PRODUCTS[seed // len(_WORLDS) % len(_PRODUCTS)])
    await world.begin()
    for _ in range(60):
        await world.act(chance.choice(VERBS), chance.randint(0, 40), chance.randint(0, 40))
        await _turned(cell, 2)
    await cell.rest()
    return cell


_WORLDS: Final = (_chips, _switches, _superpods, _recoveries)


async def _opened(policy: str, shards: int, settings: dict[str, Any]) -> UnreliableCell:
    decisions: dict[str, Any] = {"queue_policy": policy} | _QUEUE | settings
    return await UnreliableCell(shards=shards, **decisions).open()


async def _turned(cell: UnreliableCell, count: int = 1) -> None:
    for _ in range(count):
        await cell.settle()
        await cell.turn()
    await cell.settle()


def _chance(seed: int) -> random.Random:
    return random.Random(f"cell {seed}")  # noqa: S311  # the same for the same step
