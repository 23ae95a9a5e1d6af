"""Inventory and binder carry a recovery out together on a real API server; the test decides, as a dispatcher does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.lab.servers.kube_server import KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.columns import unpack
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, MembersSeen, OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Epoch, Release, Round, Settings, Verdict
from berth.schemas.placement import Placement
from berth.schemas.recovery import How, Recovery, RecoveryStatus
from berth.schemas.status import JobStatus
from tests.support.chained_records import append
from tests.support.inventories import DEADLINE_S, Heard, inventory, make_node, pod_of, set_phase
from tests.support.kube_api import KubeApi
from tests.support.kube_binder import a_placement
from tests.support.kube_rights import grant
from tests.support.processes import Service, services
from tests.support.waiting import until_true

Tree = dict[str, Any]
pytestmark = pytest.mark.timeout(120)
CAUSE = "pod of rank 1: its chip 0 on node n1 is unhealthy"
JOB = "podgroup.g"


@pytest.fixture
async def kubeconfigs(kube_server: KubeServer, kube_api: KubeApi, tmp_path: Path) -> dict[str, Path]:
    """Of ordinary users with the rights that ``k8s/`` gives to each service."""
    found = {}
    for user in ("inventory", "binder"):
        await grant(kube_api, user, user)
        found[user] = kube_server.write_kubeconfig(tmp_path / user, user=user)
    return found


class Desk:
    """What a dispatcher writes, and what the others have told."""

    def __init__(self, bus: NatsBus, api: KubeApi, namespace: str) -> None:
        self.bus = bus
        self.api = api
        self.namespace = namespace
        self.heard = Heard(bus)
        self.records = 0
        self.request: JobRequest | None = None

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def make(self, name: str, rank: int) -> str:
        pod = pod_of(name, group="g")
        pod["metadata"]["annotations"]["hccl/rankIndex"] = str(rank)
        made = await self.api.post(self.pods, pod)
        return str(made["metadata"]["uid"])

    async def pod(self, name: str) -> Tree:
        return await self.api.get(f"{self.pods}/{name}")

    async def append(self, record: Epoch | Round) -> None:
        self.records = await append(self.bus, record)

    async def record(self, **parts: object) -> None:
        number = self.records
        await self.append(Round(1, number, 0, 0, number, **parts))  # type: ignore[arg-type]  # fields of it

    async def accept(self) -> JobRequest:
        """Accept the request for the gang, and place it."""

        async def is_asked() -> bool:
            return bool(await self.heard.requests())

        await until_true(is_asked, deadline_s=DEADLINE_S, what="a request")
        (request,) = await self.heard.requests()
        self.request = request
        job = JobSeen(self.namespace, JOB, request.uid, "accepted", 1, 1, request=request)
        await self.bus.publish(self.bus.subjects.fact_job(self.namespace, JOB), encode(job))
        await self.append(Epoch(1, 0, 0, 0, "me", Settings()))
        placement = a_placement(["n0", "n1", "n2"], [(0, 1)] * 3)
        await self.record(verdicts=[Verdict(self.namespace, JOB, request.uid, 1, placement)])
        await self.tell_status("placed")
        return request

    async def until_runs(self) -> JobRequest:
        """Accept and place the gang; wait until its three pods run."""
        request = await self.accept()
        await self.until("three bound pods", bound=3, phases=["PENDING"] * 3)
        for rank in range(3):
            await set_phase(self.api, self.namespace, f"p{rank}", "Running")
        await self.until("three running pods", phases=["RUNNING"] * 3, steps=[])
        return request

    async def step(self, number: int, how: How, placement: Placement | None = None) -> None:
        """Record a step of the recovery of rank 1, and tell the status that follows from it."""
        assert self.request is not None
        step = Recovery(
            self.namespace, JOB, self.request.uid, 1, number, "CardUnhealthy", CAUSE, "pod", how, [1], [1], 1,
            placement=placement,
        )  # fmt: skip
        await self.record(recoveries=[step])
        await self.tell_status("running", 1, recovers=True)

    async def lose(self, placement: Placement | None = None) -> None:
        """A fault: the pod of rank 1 leaves, its new place is reserved if there is one, and its old one is free."""
        assert self.request is not None
        await self.step(1, "force", placement)
        await self.until("a pod that is gone", step=1, phases=["RUNNING", "GONE", "RUNNING"])
        await self.record(releases=[Release(self.request.uid, 1, "fault", ranks=[1])])

    async def tell_status(
        self, phase: str, *open_ranks: int, recovers: bool = False, unplaced: tuple[int, ...] = ()
    ) -> None:
        assert self.request is not None
        recovery = RecoveryStatus(
            1, "pod", "force", "CardUnhealthy", CAUSE, [1], [1], 1, attempt=1, open=list(open_ranks),
            unplaced=list(unplaced), refusal="no node has 2 free chips" if unplaced else "",
        )  # fmt: skip
        status = JobStatus(
            self.namespace, JOB, self.request.uid, phase, 1, 1, attempt=1, recovery=recovery if recovers else None,  # type: ignore[arg-type]  # a phase
        )  # fmt: skip
        await self.bus.publish(self.bus.subjects.status(self.namespace, JOB), encode(status))

    async def until_unschedulable(self, pod: str, words: str) -> None:
        """The condition of a pod, an Event of it and one of its PodGroup say why it waits."""

        async def is_told() -> bool:
            conditions = (await self.pod(pod))["status"].get("conditions", [])
            events = await self.api.items(f"/api/v1/namespaces/{self.namespace}/events")
            told = {
                one["involvedObject"]["name"]
                for one in events
                if (one["reason"], one["message"]) == ("FailedScheduling", words)
            }
            is_set = any(
                (one["type"], one["status"], one.get("message")) == ("PodScheduled", "False", words)
                for one in conditions
            )
            return is_set and told == {pod, "g"}

        await until_true(is_told, deadline_s=DEADLINE_S, what=f"pod {pod} says that {words}")

    async def until(self, what: str, **wanted: object) -> None:
        """Wait for what the newest fact of each kind says: ``phases``, ``steps``, ``replaced``, ``done``, ``hold``.

        Raises:
            AssertionError: None does in time; shows what they say.
        """

        async def is_told() -> bool:
            found = await self.told()
            return all(found.get(key) == value for key, value in wanted.items())

        try:
            await until_true(is_told, deadline_s=DEADLINE_S, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {await self.told()}") from error

    async def told(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for pods in [one for one in await self.heard.facts("pod", PodsSeen) if one.gang == JOB]:
            found["phases"] = [PodPhase(phase).name for phase in pods.phase]
            found["steps"] = unpack(pods.steps, 4)
        for replaced in await self.heard.facts("replacement", ReplacementsSeen):
            found["replaced"] = unpack(replaced.ranks, 4)
        for outcome in await self.heard.facts("outcome", OutcomeSeen):
            found |= {"bound": outcome.bound, "step": outcome.step, "done": outcome.done}
        for members in await self.heard.facts("member", MembersSeen):
            if members.job == JOB:
                found["uids"] = members.pod_uids
            found["hold"] = members.hold if members.job != JOB else found.get("hold", "")
        return found


@pytest.fixture
def desk(real_bus: NatsBus, kube_api: KubeApi, namespace: str) -> Desk:
    return Desk(real_bus, kube_api, namespace)


@pytest.fixture
def binder(nats_server: str, cell: str, kubeconfigs: dict[str, Path], tmp_path: Path) -> Iterator[Service]:
    """The service, not started yet."""
    with services(tmp_path, nats_server) as made:
        kube: Tree = {"kube": {"kubeconfig": str(kubeconfigs["binder"])}}
        yield made.service("binder", cell, one_at_a_time=False, **kube)


async def err(desk: Desk) -> None:
    """The controller makes a pod with the rank of another: it is held with the reason, until it is deleted."""
    await desk.make("p1", 0)
    hold = "pod p1 has hccl/rankIndex 0, the rank of pod p0: expected 1"
    await desk.until("a pod with a wrong rank is held", hold=hold)
    assert "nodeName" not in (await desk.pod("p1"))["spec"]
    await desk.api.delete(f"{desk.pods}/p1")
    await desk.until("nothing is held", hold="")


async def run(desk: Desk) -> list[str]:
    """Make a gang of three pods; returns their uids."""
    for number in range(4):
        await make_node(desk.api, f"n{number}", address=f"192.0.2.{number + 1}")
    group: Tree = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 3, "queue": "default"},
        "status": {"phase": "Inqueue"},
    }
    await desk.api.post(f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{desk.namespace}/podgroups", group)
    return [await desk.make(f"p{rank}", rank) for rank in range(3)]


async def test_a_pod_leaves_and_the_one_that_its_controller_makes_comes_in_its_place(
    desk: Desk, binder: Service, nats_server: str, cell: str, kubeconfigs: dict[str, Path]
) -> None:
    first = await run(desk)
    binder.start()
    async with inventory(nats_server, cell, kubeconfigs["inventory"]):
        await desk.until_runs()
        before = {rank: await desk.pod(f"p{rank}") for rank in (0, 2)}
        await desk.lose(a_placement(["n3"], [(4, 5)]))

        await err(desk)
        await binder.stop()
        uid = await desk.make("p1", 1)
        await desk.until("the new pod", uids=[first[0], uid, first[2]], replaced=[1])

    # The inventory starts again while the new pod waits: nothing is asked for, and nothing told twice.
    replaced = len(await desk.heard.facts("replacement", ReplacementsSeen))
    async with inventory(nats_server, cell, kubeconfigs["inventory"]):
        await desk.heard.quiet()
        assert len(await desk.heard.facts("replacement", ReplacementsSeen)) == replaced
        binder.start()
        await desk.until("the new pod is bound", done=1, bound=3, steps=[0, 1, 0], replaced=[])
        await set_phase(desk.api, desk.namespace, "p1", "Running")
        await desk.until("it runs", phases=["RUNNING"] * 3, steps=[0, 1, 0])
        await desk.tell_status("running", recovers=True)
        await desk.heard.quiet()
    await binder.stop()
    assert len(await desk.heard.requests()) == 1
    pod = await desk.pod("p1")
    notes = pod["metadata"]["annotations"]
    assert (pod["metadata"]["uid"], pod["spec"]["nodeName"]) == (uid, "n3")
    assert (notes["huawei.com/Ascend910"], notes["berth/step"]) == ("Ascend910-4,Ascend910-5", "1")
    assert "reschedule-in-place" not in notes
    for rank, pod in before.items():
        assert await desk.pod(f"p{rank}") == pod, "it keeps uid, node, chips and all else"


async def test_a_new_pod_says_why_it_has_no_place_until_it_has_one(
    desk: Desk, binder: Service, nats_server: str, cell: str, kubeconfigs: dict[str, Path]
) -> None:
    await run(desk)
    binder.start()
    async with inventory(nats_server, cell, kubeconfigs["inventory"]):
        await desk.until_runs()
        await desk.lose()
        await desk.make("p1", 1)
        await desk.until("the new pod", replaced=[1])
        await desk.tell_status("running", 1, recovers=True, unplaced=(1,))
        await desk.until_unschedulable("p1", "the new pod of rank 1 waits for a place: no node has 2 free chips")
        await desk.step(2, "place", a_placement(["n3"], [(4, 5)]))
        await desk.until("the new pod is bound", done=2, bound=3, steps=[0, 2, 0], replaced=[])
    await binder.stop()
    assert (await desk.pod("p1"))["spec"]["nodeName"] == "n3"
