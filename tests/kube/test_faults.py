"""``berth faults`` on a real API server: marks of pods, chips and exit codes come from what the cluster shows."""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from berth.cli.cluster.fault_list import FaultsRow, FaultyJobRow, faults_in, row_of
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.envelope import decode, encode
from berth.schemas.simulation import BreakNode, NodeBroken
from tests.support.command import berth
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, a_volcano_job
from tests.support.processes import services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(240)
JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces"
GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces"


async def test_a_mark_a_chip_and_an_exit_code_are_listed_with_their_ranks_and_reasons(
    kube_api: KubeApi, namespace: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        world = KubeCell(made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api)
        await world.start()
        job = a_volcano_job("llm", 3, 8, run_for="600s")
        job["metadata"]["labels"] |= {
            "fault-scheduling": "external-grace",
            "fault-retry-times": "2",
        }  # no pod is deleted
        await kube_api.post(f"{JOBS}/{namespace}/jobs", job)
        pods = await world.until_pods(namespace, {"Running": 3})
        by_rank = {int(pod["metadata"]["annotations"]["berth/rank"]): pod for pod in pods}
        assert (await _listed(world.bus)).jobs == []

        paths = [f"/api/v1/namespaces/{namespace}/pods/{by_rank[rank]['metadata']['name']}" for rank in range(3)]
        wish = BreakNode(by_rank[0]["spec"]["nodeName"], "chip", [3])
        answer = await world.bus.request(world.bus.subjects.sim("break"), encode(wish), timeout_s=5)
        assert decode(answer, NodeBroken).reason == ""
        await kube_api.patch(paths[1], {"metadata": {"labels": {"fault-type": "Separate"}}})
        ended = {"name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": 1}
        ended |= {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        await kube_api.patch(f"{paths[2]}/status", {"status": {"containerStatuses": [ended]}})

        found = await _until_kinds(world, ["CardUnhealthy", "RelationFaultSeparate", "pod-failed"])
        assert [(one.rank, one.chips, one.reason, one.master) for one in found.faults] == [
            (0, [3], "its chip 3 is unhealthy", True),
            (1, [], "it is labelled fault-type: Separate", False),
            (2, [], "a container ended with exit code 1", False),
        ]
        assert [one.node for one in found.faults] == [by_rank[rank]["spec"]["nodeName"] for rank in range(3)]
        assert (found.fault_scheduling, found.retries, found.findings) == ("external-grace", 2, [])

        group = (await kube_api.items(f"{GROUPS}/{namespace}/podgroups"))[0]["metadata"]["name"]
        await kube_api.patch(paths[2], {"metadata": {"labels": {"fault-scheduling": "force"}}})
        limit = {"huawei.com/recover_policy_path": "pod"}
        await kube_api.patch(f"{GROUPS}/{namespace}/podgroups/{group}", {"metadata": {"annotations": limit}})

        async def contradicts() -> bool:
            (one,) = (await _listed(world.bus)).jobs
            return (one.fault_scheduling, one.limit) == ("external-grace|force", "pod")

        await until_true(contradicts, deadline_s=20, what="labels that contradict one another, and a limit")
        shown = await _by_command(nats_server, cell)
        (printed,) = shown.jobs
        assert [(one.key, one.value, one.contradicts) for one in printed.findings] == [
            ("fault-scheduling", "external-grace|force", True)
        ]
        assert [one.kind for one in printed.faults] == ["CardUnhealthy", "RelationFaultSeparate", "pod-failed"]
        assert ("CardUnhealthy", [3]) in [(one.kind, one.chips) for one in shown.nodes]
        await world.stop()


async def _listed(bus: NatsBus) -> FaultsRow:
    return row_of(await faults_in(await state_now(bus, SystemClock()), bus))


async def _until_kinds(world: KubeCell, kinds: list[str]) -> FaultyJobRow:
    """Wait until the only faulty job has faults of these kinds, by rank; returns it.

    Raises:
        AssertionError: It has not in time; shows what is listed, and logs.
    """
    found: list[FaultyJobRow] = []

    async def there() -> bool:
        nonlocal found
        world.check()
        found = (await _listed(world.bus)).jobs
        return [[one.kind for one in job.faults] for job in found] == [kinds]

    try:
        await until_true(there, deadline_s=30, what=f"faults {kinds}")
    except AssertionError as error:
        raise AssertionError(f"{error}; listed are {found}{world.logs()}") from error
    return found[0]


async def _by_command(url: str, cell: str) -> FaultsRow:
    """What the command prints as JSON."""
    code, out, err = await berth("faults", "--json", url=url, cell=cell)
    assert code == 0, err
    return msgspec.json.decode(out, type=FaultsRow)
