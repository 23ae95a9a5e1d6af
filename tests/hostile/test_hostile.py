"""A short form of ``python -m tests.hostile``: each entrance at its bounds and beyond, for a moment each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from tests.hostile.cell import HostileCell, hostile_cell
from tests.hostile.loads import LOADS, Load
from tests.hostile.measuring import compare, merged

SECONDS = 1.0
"""How long the bystander submits jobs beside each half of a load."""
TRIES = 5
FAR = 10_000
"""Numbers of the requests of a try are so far from those of the one before."""
SHORT_API = {"requests_per_s": 150.0, "requests_burst": 300}
SHORT_DECISIONS = {"waiting_jobs_max": 200}


@pytest.fixture
async def hostile(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> AsyncIterator[HostileCell]:
    async with hostile_cell(tmp_path, own_server.url, cell, api=SHORT_API, decisions=SHORT_DECISIONS) as found:
        yield found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("load", LOADS, ids=[load.name for load in LOADS])
async def test_what_a_tenant_sends_delays_a_bystander_by_less_than_the_bound(
    hostile: HostileCell, load: Load[HostileCell]
) -> None:
    await hostile.place_one()  # what is made once is made
    parts = [await compare(hostile, load, seconds=SECONDS)]
    while merged(parts).faults and len(parts) < TRIES:  # others use the machine as well: more figures tell
        parts.append(await compare(hostile, load, seconds=SECONDS, first=len(parts) * FAR))
    assert merged(parts).faults == [], merged(parts).line
    assert await hostile.leaders() == 1
