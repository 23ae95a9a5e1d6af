"""Jobs with SuperPoD affinity on a real bus, with scorers, binder and a simulated cluster as processes."""

from pathlib import Path
from typing import Final

import pytest

from berth.core.topologies.blocks.placed import BlockPlacement
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.columns import unpack
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.status import JobStatus
from tests.support.cells import a_job
from tests.support.chains import chain_of, until_is
from tests.support.load import give_jobs, stored
from tests.support.placed_parts import the_block

CLUSTER: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: superpod910a3x16, count: 24, name: "a3-{index:02}", superpod: {size: 8}}
"""
DECISIONS: Final = {"super_pod_size": 8, "reserve_nodes": 2}
LONG_MS: Final = 600_000
PRODUCT: Final = "superpod910a3x16"
CHIPS: Final = 16


def in_blocks(name: str, replicas: int, block: int, **labels: str) -> JobRequest:
    """A job of whole nodes in logical SuperPoDs."""
    annotations = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": str(CHIPS * block)}
    named = {name.replace("_", "-"): value for name, value in labels.items()}
    return a_job(
        name,
        product=PRODUCT,
        chips=CHIPS,
        replicas=replicas,
        annotations=annotations,
        labels=named,
        run_ms=LONG_MS,
    )


def part_of(status: JobStatus) -> BlockPlacement:
    """How a placed job lies in blocks."""
    return the_block(status.placement)


def check_blocks(status: JobStatus, pods: dict[str, str]) -> dict[int, set[str]]:
    """SuperPoDs of each block, as the part says, which must be those of its nodes."""
    assert status.placement is not None
    part = part_of(status)
    found: dict[int, set[str]] = {}
    rows = zip(status.placement.names(), unpack(part.block_index, 2), unpack(part.superpod_index, 2), strict=True)
    for node, block, superpod in rows:
        assert pods[node] == part.superpods[superpod - 1]
        found.setdefault(part.blocks[block - 1], set()).add(pods[node])
    assert len(set(status.placement.names())) == status.pods
    return found


@pytest.mark.timeout(120)
async def test_blocks_pieces_and_services_over_a_restart_of_everything(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    pods = {f"a3-{index:02}": str(index // 8) for index in range(24)}
    with chain_of(tmp_path, own_server.url, cell, CLUSTER, DECISIONS) as chain:
        async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()
            for service in chain:
                service.start()
            await give_jobs(bus, in_blocks("blocks", 12, 3))
            blocks = await until_is(bus, "blocks", "running")
            found = check_blocks(blocks, pods)
            assert sorted(found) == [0, 1, 2, 3]
            assert all(len(superpods) == 1 for superpods in found.values())

            await give_jobs(bus, in_blocks("chat-a", 2, 2, inferserviceid="chat"))
            first = part_of(await until_is(bus, "chat-a", "running"))
            for service in chain:
                await service.kill()
            await own_server.kill()
            await own_server.start()
            for service in chain:
                service.start()
            await give_jobs(bus, in_blocks("chat-b", 2, 2, inferserviceid="chat"))
            second = part_of(await until_is(bus, "chat-b", "running"))
            assert (second.phases, second.superpods) == (["service"], first.superpods)

            await give_jobs(bus, in_blocks("hard", 8, 8))
            hard = await until_is(bus, "hard", "waiting")
            assert hard.refusal is not None
            assert hard.refusal.blocks is not None
            assert (hard.refusal.code, hard.refusal.blocks.need, hard.refusal.blocks.have) == ("no-blocks", 1, 0)
            await give_jobs(bus, in_blocks("soft", 8, 4, super_pod_affinity="soft"))
            soft = await until_is(bus, "soft", "running")
            check_blocks(soft, pods)
            assert set(part_of(soft).phases) >= {"pieces"}
            for name in ("blocks", "soft"):
                await stored(bus, bus.subjects.intake_cancel("default", name), encode(JobCancel("default", name)))
            assert len(part_of(await until_is(bus, "hard", "running")).superpods) == 1
            for service in reversed(chain):
                await service.stop()
