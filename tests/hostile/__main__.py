"""Send what tenants should not for some time: ``python -m tests.hostile --seconds 600``.

A cell with the default settings meets all loads in turn, again and again. At the end the figures of each load are
printed, and the result is 1 if a bound was passed, a leader was lost, or a service ended.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from berth.runtime.clock import SystemClock
from berth.runtime.local.nats_server import EmbeddedServer
from tests.hostile.cell import hostile_cell
from tests.hostile.loads import LOADS
from tests.hostile.measuring import Compared, compare, merged

_TURN_S = 10.0
"""How long each half of a load takes in one turn."""


def main(words: list[str] | None = None) -> int:
    """Run; returns 0 if the bystander was never delayed by more than the bound."""
    parser = argparse.ArgumentParser(prog="tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, over all loads")
    parser.add_argument("--load", action="append", choices=[load.name for load in LOADS], help="only this one")
    options = parser.parse_args(words)
    return asyncio.run(run(options.seconds, options.load or [load.name for load in LOADS]))


async def run(seconds: float, names: list[str]) -> int:
    """Meet the loads of these names for so long, each at least once."""
    clock, loads = SystemClock(), [load for load in LOADS if load.name in names]
    turn_s = min(_TURN_S, seconds / (2 * len(loads)))
    found: dict[str, list[Compared]] = {load.name: [] for load in loads}
    with tempfile.TemporaryDirectory(prefix="berth-hostile-") as folder:
        async with (
            EmbeddedServer(Path(folder) / "nats") as server,
            hostile_cell(Path(folder), server.url, "hostile", api={}, decisions={}) as cell,
        ):
            await cell.place_one()
            end_s, first = clock.monotonic_s() + seconds, 0
            while not first or clock.monotonic_s() < end_s:
                for load in loads:
                    part = await compare(cell, load, seconds=turn_s, first=first)
                    found[load.name].append(part)
                    first += part.decent.sent + part.hostile.sent
                    sys.stdout.write(f"{part.line}\n")
                    sys.stdout.flush()
            leaders = await cell.leaders()
    wholes = [merged(parts) for parts in found.values()]
    faults = [f"{whole.load}: {fault}" for whole in wholes for fault in whole.faults]
    faults += [f"{leaders} leaders, expected 1"] if leaders != 1 else []
    sys.stdout.write("\n".join(["", *(whole.line for whole in wholes), *faults, ""]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
