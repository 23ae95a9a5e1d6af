"""``berth fsck`` on the real server: nothing false is said of a cell that works, and what is wrong is found."""

import json
from pathlib import Path

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.fsck.cell_check import check_cell
from berth.runtime.stored_snapshots import snapshot_ends
from berth.schemas.subjects import StreamName
from tests.e2e.test_foreign_messages import CLUSTER, runs
from tests.support.cells import a_job
from tests.support.chained_records import append_broken
from tests.support.command import berth
from tests.support.load import give_jobs
from tests.support.processes import services

JOBS = 6
"""More than fit, one after the other: statuses change all the time."""


@pytest.mark.timeout(120)
async def test_nothing_is_found_in_a_cell_while_it_works(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    settings: dict[str, dict[str, object]] = {
        "nodesim": {"topology_file": str(tmp_path / "cluster.yaml")},
        "scorer": {"shards": 1},
        "dispatcher": {"shards": 1, "snapshot_records": 10},
        "binder": {},
    }
    async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        with services(tmp_path, own_server.url) as made:
            running = list(made.cell(cell, settings).values())
            for service in running:
                service.start()
            await runs(bus, "first")
            for number in range(JOBS):
                await give_jobs(bus, a_job(f"job-{number}", chips=8 if number % 2 else 1))
                result = await check_cell(bus, SystemClock())
                assert result.findings == [], result.findings
                count = {one.what: one.count for one in result.checked}
                assert count["snapshots"]
                assert count["statuses"]
            assert all(service.is_running for service in running), [service.log() for service in running]
            code, said, err = await berth("fsck", "--json", url=own_server.url, cell=cell)
            assert (code, json.loads(said)["findings"]) == (0, []), err


@pytest.mark.timeout(60)
async def test_what_cannot_be_checked_is_not_said_to_be_clean(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    code, _, err = await berth("fsck", url=own_server.url, cell=cell)
    assert code == 2, err
    assert f"has no cell '{cell}'" in err
    code, _, err = await berth("fsck", "--kubeconfig", str(tmp_path / "none"), url=own_server.url, cell=cell)
    assert (code, "are for --cluster" in err) == (2, True)
    async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        code, said, err = await berth("fsck", url=own_server.url, cell=cell)
        assert code == 0, err
        assert "no records: nothing was checked" in said
        assert await snapshot_ends(bus) == []
        code, _, err = await berth(
            "fsck", "--cluster", "--kubeconfig", str(tmp_path / "none"), url=own_server.url, cell=cell
        )
        assert code == 2, err
        await append_broken(bus)
        code, said, err = await berth("fsck", url=own_server.url, cell=cell)
        assert code == 1, err
        assert "LEDGER 1: ledger.round: does not decode" in said
        assert "Use: berth repair" in said
        assert (await bus.state(StreamName.SKIPS)).last_seq == 0
