"""What a cell makes of damaged files of NATS: ``python -m tests.chaos.damaged_store --seeds 300``.

One store is made by a cell under load. Each trial damages a copy of one file, starts a server on it, and reads it as a
dispatcher does when it starts. An outcome is *harmless* (the same placements), or the damage is *named*: by the server,
which does not start, or by what the dispatcher says. Anything else is *silent* and fails: chips could be given twice.
"""

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

import structlog

from berth.core.errors import CoreError
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import ShellError
from berth.runtime.feeds import Feeds
from berth.schemas.envelope import DecodeError, encode
from berth.schemas.facts import LedgerSeen
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.ledger_guard import LedgerGuard
from tests.chaos.damage import Damage, damage
from tests.chaos.loaded_cell import LoadedCell
from tests.support.load import stored
from tests.support.watch import at_rest

CELL: Final = "damaged"
_PLACED_MIN: Final = 30
_READ_S: Final = 40.0
Moment = Literal["stopped", "killed", "running"]
MOMENTS: Final[tuple[Moment, ...]] = ("stopped", "killed", "running")
"""When the files are damaged: after an orderly end, after kill -9, or under a server that is killed then."""


class Known(NamedTuple):
    """What the undamaged streams say."""

    head: int
    holdings: Mapping[tuple[str, int], Holding]
    requests: int


class Outcome(NamedTuple):
    """What became of a damaged store.

    Attributes:
        verdict: See above.
        reason: Who names it, in its words; or what differs.
        requests: Stored requests that are gone.
    """

    verdict: Literal["harmless", "named", "silent"]
    reason: str
    requests: int = 0


async def make_store(folder: Path) -> Known:
    """Let a cell work, and leave its store after an orderly end in ``stopped`` and after kill -9 in ``killed``."""
    server = EmbeddedServer(folder / "nats", sync="always")
    async with server:
        async with LoadedCell(folder, [server.url], CELL) as loaded:
            async with asyncio.TaskGroup() as group:
                group.create_task(loaded.load.run(), name="load")
                while len(loaded.watch.placed) < _PLACED_MIN:
                    await loaded.worked(more=10)
                loaded.load.stop()
            await at_rest(loaded.watch)
            for process in loaded.processes.values():
                await process.stop()
            await loaded.watch.reach_heads()
            ledger = await loaded.bus.state(StreamName.LEDGER)
            seen = LedgerSeen(ledger.created, loaded.watch.fold.epoch, ledger.last_seq)
            await stored(loaded.bus, loaded.bus.subjects.fact_ledger, encode(seen))
            intake = await loaded.bus.state(StreamName.INTAKE)
            known = Known(ledger.last_seq, dict(loaded.watch.fold.holdings), intake.messages)
            assert known.holdings, "nothing is placed: the damage could do no harm"
        await server.kill()
        shutil.copytree(server.store, folder / "killed")
        await server.start()
    shutil.copytree(server.store, folder / "stopped")
    return known


async def trial(folder: Path, seed: int, known: Known) -> tuple[Moment, Damage, Outcome]:
    """Damage a copy of the store and see what becomes of it."""
    random = Random(seed)  # noqa: S311  # a test's choices
    moment = MOMENTS[seed % len(MOMENTS)]
    server = EmbeddedServer(folder / f"trial-{seed}")
    shutil.copytree(folder / ("stopped" if moment == "stopped" else "killed"), server.store)
    try:
        if moment == "running":
            await server.start()
        done = damage(random, server.store)
        await server.kill()
        return moment, done, await _outcome(server, known)
    finally:
        await server.kill()
        shutil.rmtree(server.root, ignore_errors=True)


async def _outcome(server: EmbeddedServer, known: Known) -> Outcome:
    """Start the server, read it as a dispatcher does, and compare."""
    try:
        await server.start()
    except ShellError as error:
        return Outcome("named", f"nats-server: {error}")
    try:
        async with asyncio.timeout(_READ_S), await NatsBus.connect(server.url, CELL, name="trial") as bus:
            await bus.ensure_streams()
            lost = known.requests - (await bus.state(StreamName.INTAKE)).messages
            state = State(keeps=True)
            feeds = Feeds(bus, SystemClock(), state)
            try:
                await feeds.start()
                obstacle = await LedgerGuard(feeds).obstacle()
            finally:
                await feeds.stop()
    except TimeoutError:
        return Outcome("named", "a dispatcher that starts waits for a stream for ever")
    except (ShellError, CoreError, DecodeError) as error:
        return Outcome("named", str(error))
    if obstacle:
        return Outcome("named", obstacle, lost)
    if state.fold.head == known.head and state.fold.holdings == known.holdings:
        return Outcome("harmless", "", lost)
    missing = sorted(set(known.holdings) - set(state.fold.holdings))
    return Outcome("silent", f"head {state.fold.head} of {known.head}, placements gone: {missing}", lost)


async def run(seeds: int, first: int) -> int:
    """Try many seeds; returns how many outcomes are silent."""
    folder = Path(tempfile.mkdtemp(prefix="damage-"))
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    try:
        known = await make_store(folder)
        for seed in range(first, first + seeds):
            moment, done, outcome = await trial(folder, seed, known)
            counts[outcome.verdict] += 1
            if outcome.requests:
                counts["requests gone"] += 1
            words = " ".join(outcome.reason.split())
            reasons[f"{outcome.verdict}: {''.join(c for c in words if not c.isdigit())[:80]}"] += 1
            line = f"{seed} {moment}: {done.stream}/{done.file}: {done.what}: {outcome.verdict} {words[:160]}"
            sys.stdout.write(f"{line}{f' ({outcome.requests} requests gone)' if outcome.requests else ''}\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(f"\n{seeds} seeds: {dict(counts)}\n")
    for reason, count in reasons.most_common():
        sys.stdout.write(f"{count:5} {reason}\n")
    return counts["silent"]


def main(words: list[str] | None = None) -> int:
    """Run; returns 0 if no outcome is silent."""
    parser = argparse.ArgumentParser(prog="tests.chaos.damaged_store", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(words)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return 1 if asyncio.run(run(options.seeds, options.first)) else 0


if __name__ == "__main__":
    sys.exit(main())
