"""``berth fsck --cluster`` on a real API server and bus: a cell that works, and pods that are not as they should be."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from berth.formats.ascend.pod_annotations import ASCEND_REAL, JOB_UID, LEDGER
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.subjects import StreamName
from tests.support.command import berth
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, a_volcano_job
from tests.support.processes import services

pytestmark = pytest.mark.timeout(240)
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
RESOURCE = "huawei.com/Ascend910"


async def annotate(api: KubeApi, pod: dict[str, Any], **annotations: str) -> None:
    """Change annotations of a pod."""
    meta = pod["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    await api.patch(path, {"metadata": {"annotations": annotations}})


async def test_pods_are_compared_with_the_ledger(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, kubeconfig: Path, tmp_path: Path
) -> None:
    async def fsck() -> tuple[int, dict[str, Any]]:
        words = ("fsck", "--cluster", "--kubeconfig", str(kubeconfig), "--json")
        code, out, err = await berth(*words, url=nats_server, cell=cell)
        assert code in {0, 1}, err
        return code, json.loads(out)

    with services(tmp_path, nats_server) as made:
        world = KubeCell(made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api)
        await world.start()
        for name in ("first", "second"):
            await kube_api.post(JOBS.format(namespace), a_volcano_job(name, 2, 2, run_for="900s"))
        await world.until_pods(namespace, {"Running": 4})
        code, result = await fsck()
        assert (code, result["findings"]) == (0, []), world.logs()
        count = {one["what"]: one["count"] for one in result["checked"]}
        assert count["pods that Berth bound"] == count["pods that name a record of this ledger"] == 4
        assert (count["chips of pods"], count["statuses"]) == (8, 2)
        await world.stop()

        pods = await kube_api.items(f"/api/v1/namespaces/{namespace}/pods")
        nodes = Counter(pod["spec"]["nodeName"] for pod in pods)
        pods.sort(key=lambda pod: (nodes[pod["spec"]["nodeName"]], pod["spec"]["nodeName"], pod["metadata"]["name"]))
        ahead, forgotten, first, second = pods
        assert first["spec"]["nodeName"] == second["spec"]["nodeName"]
        state = await real_bus.state(StreamName.LEDGER)
        await annotate(kube_api, ahead, **{LEDGER: f"{state.created}/1/{state.last_seq + 1}"})
        await annotate(kube_api, forgotten, **{JOB_UID: "forgotten"})
        await annotate(kube_api, second, **{ASCEND_REAL: first["metadata"]["annotations"][RESOURCE]})
        code, result = await fsck()
        assert code == 1
        found = sorted((one["code"], one["name"].rpartition("/")[2], one["repair"]) for one in result["findings"])
        names = [pod["metadata"]["name"] for pod in (ahead, forgotten, second)]
        delete = f"kubectl delete pod -n {namespace} "
        assert found == [
            ("chip-twice", names[2], f"{delete}{names[2]}"),
            ("chips-elsewhere", names[2], ""),
            ("pod-ahead", names[0], "berth restore"),
            ("pod-without-record", names[1], f"{delete}{names[1]}"),
        ]
