"""A ledger whose newest records are lost, while pods that they bound run, on a real API server and a real bus.

The bus' files are replaced by an older copy while the server is down: the stream is the same one then, and shorter.
"""

import shutil
from pathlib import Path

import pytest

from berth.formats.ascend.ledger_mark import LedgerMark, mark_of
from berth.formats.ascend.pod_annotations import LEDGER
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import decode
from berth.schemas.facts import LedgerSeen
from berth.schemas.subjects import StreamName
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import ORDER, KubeCell, a_volcano_job
from tests.support.processes import services
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(240)
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces"


async def until_told(bus: NatsBus, mark: LedgerMark) -> None:
    """Wait until a fact names a record as the newest by which a pod is bound."""

    async def is_told() -> bool:
        stored = await bus.last(StreamName.FACTS, bus.subjects.fact_ledger)
        seen = decode(stored.data, LedgerSeen) if stored is not None else None
        return seen is not None and LedgerMark(seen.stream, seen.epoch, seen.sequence) == mark

    await until_true(is_told, deadline_s=40, what=f"the fact of {mark}")


async def marks(api: KubeApi, namespace: str) -> list[LedgerMark]:
    """Records that the pods of a namespace name."""
    pods = await api.items(f"/api/v1/namespaces/{namespace}/pods")
    found = [mark_of(pod["metadata"].get("annotations", {}).get(LEDGER, "")) for pod in pods]
    return sorted(mark for mark in found if mark is not None)


async def replace_files(server: EmbeddedServer, bus: NatsBus, source: Path, target: Path) -> None:
    """Copy the files of the server while it is down."""
    await server.stop()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    await server.start()
    await until(lambda: bus.connected, deadline_s=20, what="a connection to the bus")


@pytest.mark.processes
async def test_a_dispatcher_does_not_lead_on_a_ledger_that_has_lost_records(
    own_server: EmbeddedServer, cell: str, kube_api: KubeApi, namespace: str, tmp_path: Path
) -> None:
    jobs = f"{JOBS}/{namespace}/jobs"
    async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        with services(tmp_path, own_server.url) as made:
            world = KubeCell(made, folder=tmp_path, cell=cell, bus=bus, api=kube_api)
            await world.start()
            await kube_api.post(jobs, a_volcano_job("first", 1, 2))
            await world.until_pods(namespace, {"Running": 1})
            stream = (await bus.state(StreamName.LEDGER)).created
            (first,) = await marks(kube_api, namespace)
            assert first.stream == stream
            await until_told(bus, first)
            await world.stop()
            copied = (await bus.state(StreamName.LEDGER)).last_seq
            await replace_files(own_server, bus, own_server.store, tmp_path / "copy")

            await world.start()
            await kube_api.post(jobs, a_volcano_job("second", 1, 2))
            await world.until_pods(namespace, {"Running": 2})
            second = (await marks(kube_api, namespace))[-1]
            assert (second.stream, second.sequence > copied) == (stream, True)
            for name in reversed(ORDER):
                await world.services[name].kill()
            await replace_files(own_server, bus, tmp_path / "copy", own_server.store)
            assert (await bus.state(StreamName.LEDGER)).created == stream

            for name in ORDER:
                if name != "dispatcher":
                    await world.start(name)
            await until_told(bus, second)
            await kube_api.post(jobs, a_volcano_job("third", 1, 2))
            dispatcher = world.services["dispatcher"]
            dispatcher.start()
            await until(lambda: "does not lead" in dispatcher.log(), deadline_s=30, what="it does not lead")
            assert f"ends at record {copied}, but a pod is bound by record {second.sequence}" in dispatcher.log()
            assert (await bus.state(StreamName.LEDGER)).last_seq == copied
