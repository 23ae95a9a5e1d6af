"""Send what tenants should not for some time: ``python -m tests.hostile --seconds 600``.

A cell with the default settings meets all loads in turn, again and again, then one on an API server a flood of pods.
At the end the figures of each load are printed, and the result is 1 if a bound was passed, a leader was lost, or a
service ended.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.clock import SystemClock
from tests.hostile.cell import hostile_cell
from tests.hostile.loads import LOADS, C, Load
from tests.hostile.measuring import Compared, compare, merged
from tests.hostile.pods import MANY_PODS, pod_cell

NAMES = [*(load.name for load in LOADS), MANY_PODS.name]
"""Loads that there are."""
_TURN_S = 10.0
"""How long each half of a load takes in one turn."""


def main(words: list[str] | None = None) -> int:
    """Run; returns 0 if the bystander was never delayed by more than the bound."""
    parser = argparse.ArgumentParser(prog="tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, over all loads")
    parser.add_argument("--load", action="append", choices=NAMES, help="only this one")
    options = parser.parse_args(words)
    return asyncio.run(run(options.seconds, options.load or NAMES))


async def run(seconds: float, names: list[str]) -> int:
    """Meet the loads of these names for so long, each at least once."""
    loads = [load for load in LOADS if load.name in names]
    pods_s = seconds / len(names) if MANY_PODS.name in names else 0.0
    wholes: list[Compared] = []
    leaders: list[int] = []
    with tempfile.TemporaryDirectory(prefix="berth-hostile-") as name:
        folder = Path(name)
        async with EmbeddedServer(folder / "nats") as server:
            if loads:
                async with hostile_cell(folder, server.url, "hostile", api={}, decisions={}) as cell:
                    wholes += await meet(cell, loads, seconds - pods_s)
                    leaders.append(await cell.leaders())
            if pods_s:
                async with pod_cell(folder, server.url, "pods") as pods:
                    wholes += await meet(pods, [MANY_PODS], pods_s)
                    leaders.append(await pods.leaders())
    faults = [f"{whole.load}: {fault}" for whole in wholes for fault in whole.faults]
    faults += [f"{count} leaders, expected 1" for count in leaders if count != 1]
    sys.stdout.write("\n".join(["", *(whole.line for whole in wholes), *faults, ""]))
    return 1 if faults else 0


async def meet(cell: C, loads: Sequence[Load[C]], seconds: float) -> list[Compared]:
    """Meet loads in turn for so long, each at least once; returns the figures of each."""
    clock = SystemClock()
    turn_s = min(_TURN_S, seconds / (2 * len(loads)))
    found: dict[str, list[Compared]] = {load.name: [] for load in loads}
    await cell.place_one()
    end_s, first = clock.monotonic_s() + seconds, 0
    while not first or clock.monotonic_s() < end_s:
        for load in loads:
            part = await compare(cell, load, seconds=turn_s, first=first)
            found[load.name].append(part)
            first += part.decent.sent + part.hostile.sent
            sys.stdout.write(f"{part.line}\n")
            sys.stdout.flush()
    return [merged(parts) for parts in found.values()]


if __name__ == "__main__":
    sys.exit(main())
