"""The inventory goes on after it, or the API server, was away, on a real API server and a real bus."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from berth.lab.cells.fleet import EXAMPLES
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.facts import JobSeen, MembersSeen
from tests.support.inventories import DEADLINE_S, Heard, bind_pod, dispatcher, inventory, make_node, pod_of
from tests.support.kube_api import KubeApi, apply_crds, crds_in
from tests.support.processes import services
from tests.support.waiting import until, until_true

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
CHIPS = {"huawei.com__Ascend910": "Ascend910-0,Ascend910-1"}


@pytest.fixture
def heard(real_bus: NatsBus) -> Heard:
    """What the inventory has said."""
    return Heard(real_bus)


@pytest.fixture
async def own_api(tmp_path: Path) -> AsyncIterator[KubeApi]:
    """A server of the test's own, with a node, the namespace ``team`` and a kubeconfig in ``tmp_path``."""
    async with KubeServer(tmp_path / "own", start_deadline_s=60) as server, KubeApi(server) as api:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        await make_node(api, "n1")
        await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
        yield api


async def test_a_restart_says_nothing_twice(
    nats_server: str, cell: str, heard: Heard, kube_api: KubeApi, namespace: str, kubeconfig: Path
) -> None:
    await make_node(kube_api, "n1")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await kube_api.post(pods, pod_of("waits"))
    await kube_api.post(pods, pod_of("other", scheduler="volcano"))
    await bind_pod(kube_api, namespace, "other", "n1", **CHIPS)
    async with dispatcher(nats_server, cell):
        async with inventory(nats_server, cell, kubeconfig):

            async def told() -> bool:
                jobs = await heard.facts("job", JobSeen)
                return bool(jobs and await heard.pods() and await heard.nodes())

            await until_true(told, deadline_s=DEADLINE_S, what="a request and its verdict")
            count = await heard.quiet()
        async with inventory(nats_server, cell, kubeconfig):
            assert await heard.quiet() == count
            await kube_api.delete(f"{pods}/other")

            async def gone() -> bool:
                return await heard.pods() == {"pod/other": []}

            await until_true(gone, deadline_s=DEADLINE_S, what="the end of the pod")
    assert len(await heard.requests()) == 1


@pytest.mark.timeout(120)
async def test_a_process_that_is_killed_again_and_again_ends_with_the_same_facts(
    nats_server: str, cell: str, heard: Heard, kube_api: KubeApi, namespace: str, kubeconfig: Path, tmp_path: Path
) -> None:
    """Chips of foreign pods and requests of own ones: each once, whatever was under way when the process died."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with services(tmp_path, nats_server) as made:
        process = made.service("inventory", cell, kube={"kubeconfig": str(kubeconfig)}, settle_s=0.02)
        async with dispatcher(nats_server, cell):
            for turn in range(4):
                process.start()
                await make_node(kube_api, f"n{turn}", address=f"192.0.2.{turn}")
                await kube_api.post(pods, pod_of(f"own{turn}"))
                await kube_api.post(pods, pod_of(f"other{turn}", scheduler="volcano"))
                await bind_pod(kube_api, namespace, f"other{turn}", f"n{turn}", **CHIPS)
                if turn:
                    await kube_api.delete(f"{pods}/other{turn - 1}")
                want = await heard.count() + turn

                async def something_was_said(want: int = want) -> bool:
                    return await heard.count() > want

                await until_true(something_was_said, deadline_s=DEADLINE_S, what="a word before it is killed")
                await process.kill()
            process.start()

            async def all_said() -> bool:
                live = {gang: phases for gang, phases in (await heard.pods()).items() if phases}
                return (
                    sorted(await heard.nodes()) == ["n0", "n1", "n2", "n3"]
                    and live == {"pod/other3": ["PENDING"]}
                    and len({one.name for one in await heard.facts("job", JobSeen)}) == 4
                )

            await until_true(all_said, deadline_s=DEADLINE_S, what="everything")
            await until(
                lambda: "cluster listed" in process.whole_log().rpartition("--- start")[2],
                deadline_s=DEADLINE_S,
                what="the last start to have listed the cluster",
            )
            await heard.quiet()
            await process.stop()
            members = {fact.job: fact.uid for fact in await heard.facts("member", MembersSeen)}
            assert members == {one.name: one.uid for one in await heard.requests()}
            jobs = {fact.name: fact for fact in await heard.facts("job", JobSeen)}
            assert {name: (job.uid, job.state) for name, job in jobs.items()} == {
                name: (uid, "accepted") for name, uid in members.items()
            }
            assert sorted(members) == [f"pod.own{turn}" for turn in range(4)]


@pytest.mark.timeout(180)
async def test_a_server_that_dies_and_comes_back_loses_nothing_and_repeats_nothing(
    own_api: KubeApi, nats_server: str, cell: str, heard: Heard, tmp_path: Path
) -> None:
    await own_api.post("/api/v1/namespaces/team/pods", pod_of("before"))
    async with inventory(nats_server, cell, tmp_path / "kubeconfig") as task:

        async def told() -> bool:
            return len(await heard.requests()) == 1 and bool(await heard.nodes())

        await until_true(told, deadline_s=DEADLINE_S, what="the first request")
        count = await heard.quiet()
        await own_api.server.kill_api()
        await own_api.server.start_api()
        await make_node(own_api, "n2")
        await own_api.post("/api/v1/namespaces/team/pods", pod_of("after"))

        async def told_of_both() -> bool:
            names = sorted(one.name for one in await heard.requests())
            return names == ["pod.after", "pod.before"] and sorted(await heard.nodes()) == ["n1", "n2"]

        await until_true(told_of_both, deadline_s=60, what="what came while the server was away")
        assert await heard.quiet() > count
        assert not task.done()
        members = await heard.facts("member", MembersSeen)
        assert sorted(fact.job for fact in members) == ["pod.after", "pod.before"]


@pytest.mark.timeout(180)
async def test_groups_are_found_once_the_server_knows_them(
    own_api: KubeApi, nats_server: str, cell: str, heard: Heard, tmp_path: Path
) -> None:
    await own_api.post("/api/v1/namespaces/team/pods", pod_of("member", group="g"))
    await own_api.post("/api/v1/namespaces/team/pods", pod_of("alone"))
    async with inventory(nats_server, cell, tmp_path / "kubeconfig"):

        async def told() -> bool:
            return [one.name for one in await heard.requests()] == ["pod.alone"]

        await until_true(told, deadline_s=DEADLINE_S, what="the pod that stands alone")
        crds = crds_in(EXAMPLES / "crds")
        wanted = [crd for crd in crds if crd["spec"]["group"] == "scheduling.volcano.sh"]
        await apply_crds(own_api, wanted)
        spec = {"minMember": 1, "minResources": {"huawei.com/Ascend910": "2"}}
        await own_api.post(
            GROUPS.format("team"),
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "g"},
                "spec": spec,
                "status": {"phase": "Pending"},
            },
        )

        async def both() -> bool:
            return len(await heard.requests()) == 2

        await until_true(both, deadline_s=DEADLINE_S, what="the pod of the group")
