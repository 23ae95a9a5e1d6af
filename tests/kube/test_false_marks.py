"""A tenant's pod says that Berth bound it by a record that nobody wrote; the cell has keys, and goes on."""

from pathlib import Path
from typing import Any, Final

import pytest

from berth.formats.ascend.mark_proofs import MarkProofs
from berth.formats.ascend.pod_annotations import ATTEMPT, JOB, JOB_UID, LEDGER, RANK
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.keys.mark_keys import make_mark_keys, read_mark_keys
from berth.schemas.subjects import StreamName
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, a_spec, a_volcano_job
from tests.support.processes import services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(240)
JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"


@pytest.mark.processes
async def test_forged_ledger_mark(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    keys = tmp_path / "marks"
    make_mark_keys(keys, replaces=False)
    proofs = MarkProofs(read_mark_keys(keys, field="keys"))
    settings = {name: {"marks_file": str(keys)} for name in ("inventory", "binder")}
    pods = f"/api/v1/namespaces/{namespace}/pods"

    async def marked() -> list[dict[str, Any]]:
        """Metadata of the pods with marks, by name."""
        found = [one["metadata"] for one in await kube_api.items(pods)]
        return sorted((one for one in found if JOB_UID in one.get("annotations", {})), key=lambda one: one["name"])

    async def is_reported() -> bool:
        events = await kube_api.items(f"/api/v1/namespaces/{namespace}/events")
        return [one["involvedObject"]["name"] for one in events if one["reason"] == "MarkFalse"] == ["forged"]

    with services(tmp_path, nats_server) as made:
        world = KubeCell(made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, settings=settings)
        await world.start()
        await kube_api.post(JOBS.format(namespace), a_volcano_job("first", 2, 2, run_for="900s"))
        await world.until_pods(namespace, {"Running": 2})
        own = await marked()
        assert [proofs.counted(one["uid"], one["annotations"]) is one["annotations"] for one in own] == [True, True]

        ledger = await real_bus.state(StreamName.LEDGER)
        forged = {JOB: "vcjob.first", JOB_UID: "x", ATTEMPT: "1", RANK: "0", LEDGER: f"{ledger.created}/1/999999999"}
        spec = a_spec(1, scheduler="default-scheduler") | {"nodeName": "a2-3"}
        chips = {"huawei.com/Ascend910": "Ascend910-7", "predicate-time": "1"}
        meta = {"name": "forged", "annotations": {**forged, **chips, "berth/run-for": "900s"}}
        await kube_api.post(pods, {"metadata": meta, "spec": spec})
        await until_true(is_reported, deadline_s=40, what="an Event about the pod")
        await kube_api.post(JOBS.format(namespace), a_volcano_job("second", 1, 2, run_for="900s"))
        await world.until_pods(namespace, {"Running": 4})
        assert "does not lead" not in world.logs()

        for name in ("inventory", "binder", "dispatcher"):
            await world.restart(name)
        await kube_api.post(JOBS.format(namespace), a_volcano_job("third", 1, 2, run_for="900s"))
        await world.until_pods(namespace, {"Running": 5})
        assert {one["uid"] for one in own} <= {one["uid"] for one in await marked()}
        assert "does not lead" not in world.logs()
