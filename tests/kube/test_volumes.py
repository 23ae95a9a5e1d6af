"""Volumes of jobs as a user of the cluster sees them, with the volume controller of Kubernetes and a provisioner."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from berth.lab.servers.kube_server import CONTROLLERS, KubeServer
from berth.schemas.envelope import decode
from berth.schemas.subjects import StreamName
from berth.schemas.volume_facts import UnboundSeen
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import Tree, a_spec
from tests.support.prepared_server import USERS, Prepared, prepare, served
from tests.support.stand_in_provisioner import (
    SELECTED,
    StandInProvisioner,
    a_claim,
    local_volume,
    make_classes,
    mounting,
)

pytestmark = pytest.mark.timeout(240)
LONG: Final = {"berth/run-for": "600s"}
MARK: Final = "berth/volume-for"
BINDERS: Final = ("persistentvolume-binder", "pvc-protection", "pv-protection")
"""Controllers that bind claims to volumes, and let claims go that no pod uses."""
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 3, name: "a2-{index}"}
"""


@pytest.fixture(scope="module")
def kube_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A server of its own: its controllers bind claims and volumes, also those that other tests write as they are."""
    controllers = (*CONTROLLERS, *BINDERS)
    users = dict.fromkeys(USERS, ())
    folder = tmp_path_factory.mktemp("volumes")
    often = ("--pvclaimbinder-sync-period=2s",)  # when it looks at what was not bound before; 15 s without it
    server = KubeServer(folder, users=users, controllers=controllers, controller_args=often, start_deadline_s=50)
    yield from served(server)


@pytest.fixture(scope="module")
def kube_prepared(kube_server: KubeServer) -> Prepared:
    """As for all tests, and classes of storage."""

    async def classes() -> None:
        async with KubeApi(kube_server) as api:
            await make_classes(api)

    prepared = prepare(kube_server)
    asyncio.run(classes())
    return prepared


class VolumeCell:
    """A cell, a provisioner, and the names of the nodes."""

    def __init__(self, target: InvalidInputCell, provisioner: StandInProvisioner) -> None:
        self.target = target
        self.api = target.api
        self.provisioner = provisioner
        self.nodes: list[str] = []
        self._claims = f"/api/v1/namespaces/{target.namespace}/persistentvolumeclaims"

    async def start(self) -> "VolumeCell":
        await self.target.cell.start()
        self.nodes = sorted(node["metadata"]["name"] for node in await self.api.items("/api/v1/nodes"))
        return self

    async def claim(self, name: str, storage_class: str = "made") -> None:
        await self.api.post(self._claims, a_claim(name, storage_class))

    async def drop_claim(self, name: str) -> None:
        await self.api.delete(f"{self._claims}/{name}")
        await self.target.until_is(f"{name} is gone", lambda: self.claim_now(name), None)

    async def claim_now(self, name: str) -> Tree | None:
        found = [one for one in await self.api.items(self._claims) if one["metadata"]["name"] == name]
        return found[0] if found else None

    async def notes(self, *names: str) -> list[Tree]:
        """Annotations of claims that the binder writes."""
        found = {one["metadata"]["name"]: one["metadata"] for one in await self.api.items(self._claims)}
        kept = (MARK, SELECTED)
        return [{key: value for key, value in _notes(found[name]).items() if key in kept} for name in names]

    async def volume(self, name: str, node: str, *, claim: str = "") -> str:
        """Make a volume that can be used from a node, for a claim if one is named; returns its name."""
        own = f"{self.target.namespace}-{name}"
        tree = local_volume(own, node, storage_class="made" if claim else "local")
        if claim:
            tree["spec"]["claimRef"] = {"namespace": self.target.namespace, "name": claim}
        await self.api.post("/api/v1/persistentvolumes", tree)
        return own

    async def pod(self, name: str, *claims: str, group: str = "", **more: object) -> None:
        annotations = LONG | ({"scheduling.k8s.io/group-name": group} if group else {})
        await self.target.pod(name, a_spec(1) | mounting(*claims) | more, annotations=annotations)

    async def node_of(self, name: str) -> str:
        pod = await self.api.get(f"/api/v1/namespaces/{self.target.namespace}/pods/{name}")
        return str(pod["spec"].get("nodeName", ""))

    async def runs_on(self, name: str) -> str:
        await self.target.until_running(name)
        return await self.node_of(name)

    async def bound_to(self, name: str) -> str:
        """Volume of a claim, once the server says that it is bound: soon after the pod that needs it runs."""
        volume = ""

        async def is_bound() -> bool:
            nonlocal volume
            found = await self.claim_now(name)
            volume = str(found["spec"].get("volumeName", "")) if found else ""
            return bool(volume and found and found["status"].get("phase") == "Bound")

        await self.target.until(f"claim {name} is bound", is_bound)
        return volume

    async def is_free(self, name: str) -> bool:
        """Whether a claim has no volume."""
        found = await self.claim_now(name)
        return bool(found and not found["spec"].get("volumeName"))

    async def waits(self, pod: str, words: str) -> None:
        """The pod's condition says that it is not scheduled, and why."""

        async def told() -> bool:
            status, reason, message = await self.target.condition(pod)
            return (status, reason) == ("False", "Unschedulable") and words in message

        await self.target.until(f"{pod} waits: {words}", told)
        assert await self.node_of(pod) == ""

    async def asked_for(self, *claims: str) -> None:
        """Wait until the provisioner was asked for volumes."""

        async def were() -> bool:
            return set(claims) <= {name for name, _ in self.provisioner.asked}

        await self.target.until(f"volumes for {', '.join(claims)} are asked for", were)

    async def failures(self) -> list[UnboundSeen]:
        """What facts say of claims that could not be bound."""
        stored = await self.target.bus.read(StreamName.LATEST, filters=(self.target.bus.subjects.facts("unbound"),))
        return [decode(one.data, UnboundSeen) for one in stored]


def _notes(meta: Tree) -> dict[str, Any]:
    return dict(meta.get("annotations") or {})


@asynccontextmanager
async def a_cell(target_of: TargetOf, **binder: object) -> AsyncIterator[VolumeCell]:
    target = target_of(TOPOLOGY, {"binder": {"notice_again_s": 1} | binder})  # also where only a number changes
    async with StandInProvisioner(target.api).running() as provisioner:
        yield await VolumeCell(target, provisioner).start()


async def test_claims_are_bound_and_then_their_pod_also_when_the_provisioner_is_late(target_of: TargetOf) -> None:
    async with a_cell(target_of) as cell:
        cell.provisioner.holds[""] = set(cell.nodes)
        own = await cell.volume("own", cell.nodes[1])
        await cell.claim("data")
        await cell.claim("static", "local")
        await cell.pod("both", "data", "static")
        await cell.asked_for("data")
        assert cell.provisioner.asked == [("data", cell.nodes[1])], "where the volume is that exists"
        await cell.pod("other")
        await cell.target.until_running("other")
        assert await cell.node_of("both") == "", "a pod is bound after its claims, and holds up no other"
        sentence = f"claim data is not bound yet to a volume for node {cell.nodes[1]}"

        async def is_described() -> bool:
            return ("WaitingForVolume", sentence, 1) in await cell.target.events("Pod", "both")

        await cell.target.until("what the pod waits for is described", is_described)
        cell.provisioner.holds.clear()
        assert await cell.runs_on("both") == cell.nodes[1]
        assert await cell.bound_to("static") == own
        assert (await cell.bound_to("data")).startswith("made-")
        await cell.pod("again", "data", "static")
        assert await cell.runs_on("again") == cell.nodes[1]


async def test_a_volume_that_cannot_be_made_for_a_node_is_made_for_another(target_of: TargetOf) -> None:
    async with a_cell(target_of) as cell:
        cell.provisioner.refuses[""] = set(cell.nodes[:2])
        await cell.claim("data")
        await cell.pod("job", "data")
        assert await cell.runs_on("job") == cell.nodes[2]
        assert [node for _, node in cell.provisioner.asked] == cell.nodes
        sentence = f"claim data: the provisioner cannot make a volume for node {cell.nodes[0]}"
        await cell.target.until_event("Pod", "job", "FailedBinding", sentence)
        await cell.pod("later")
        await cell.target.until_running("later")

        async def are_over() -> bool:
            return [fact.nodes for fact in await cell.failures()] == [[]]

        await cell.target.until("the failures of a claim that is bound count no longer", are_over)


async def test_of_a_gang_whose_claim_cannot_be_bound_no_pod_is_bound_and_nothing_is_left(target_of: TargetOf) -> None:
    async with a_cell(target_of) as cell:
        cell.provisioner.holds["d0"] = set(cell.nodes)
        cell.provisioner.refuses["d1"] = set(cell.nodes)
        await cell.target.group("gang", {"minMember": 2})
        for number in range(2):
            await cell.claim(f"d{number}")
            await cell.pod(f"w{number}", f"d{number}", group="gang")

        async def is_refused_everywhere() -> bool:
            failures = [(failure.name, failure.nodes) for failure in await cell.failures()]
            return failures == [("d1", cell.nodes)] and await cell.notes("d0", "d1") == [{}, {}]

        await cell.target.until("each node was tried and nothing of it is left", is_refused_everywhere)
        await cell.waits("w1", "have no access to a volume of the job")
        assert await cell.node_of("w0") == ""
        cell.provisioner.refuses.clear()
        cell.provisioner.holds.clear()
        await cell.drop_claim("d1")
        await cell.claim("d1")
        await cell.target.until_running("w0", "w1")
        assert [(await cell.bound_to(f"d{number}"))[:5] for number in range(2)] == ["made-", "made-"]


async def test_a_volume_that_is_not_made_in_time_is_made_elsewhere(target_of: TargetOf) -> None:
    async with a_cell(target_of, volumes_timeout_s=10) as cell:  # it is also for the node where the volume is made
        cell.provisioner.holds[""] = {cell.nodes[0]}
        await cell.claim("data")
        await cell.pod("job", "data")
        assert await cell.runs_on("job") == cell.nodes[1]
        sentence = f"claim data was not bound to a volume for node {cell.nodes[0]} within 10 s"
        await cell.target.until_event("Pod", "job", "FailedBinding", sentence)


async def test_one_volume_goes_to_one_of_two_jobs(target_of: TargetOf) -> None:
    async with a_cell(target_of) as cell:
        one = await cell.volume("one", cell.nodes[2])
        for name in ("c0", "c1"):
            await cell.claim(name, "local")
            await cell.pod(f"job-{name}", name)
        assert await cell.runs_on("job-c0") == cell.nodes[2]
        await cell.waits("job-c1", "3 have no access to a volume of the job")
        assert await cell.bound_to("c0") == one
        assert await cell.is_free("c1")
        two = await cell.volume("two", cell.nodes[0])
        assert await cell.runs_on("job-c1") == cell.nodes[0]
        assert await cell.bound_to("c1") == two


async def test_claims_that_change_while_a_job_waits(target_of: TargetOf) -> None:
    async with a_cell(target_of) as cell:
        await cell.pod("job", "data")
        await cell.waits("job", "claim data: expected one that exists")
        await cell.claim("data", "now")
        await cell.waits("job", "claim data: expected one that is bound, or whose StorageClass waits for the first pod")
        await cell.drop_claim("data")
        await cell.waits("job", "claim data: expected one that exists")
        cell.provisioner.holds[""] = set(cell.nodes)
        await cell.claim("data")
        await cell.asked_for("data")
        await cell.drop_claim("data")
        await cell.waits("job", "claim data: expected one that exists")
        await cell.claim("data", "local")
        await cell.waits("job", "3 have no access to a volume of the job")
        await cell.volume("there", cell.nodes[2])
        assert await cell.runs_on("job") == cell.nodes[2]


async def test_a_claim_that_somebody_else_binds_takes_its_job_to_its_volume(target_of: TargetOf) -> None:
    async with a_cell(target_of) as cell:
        cell.provisioner.holds[""] = set(cell.nodes)
        await cell.claim("data")
        await cell.pod("job", "data")
        await cell.asked_for("data")
        there = await cell.volume("there", cell.nodes[2], claim="data")
        assert await cell.runs_on("job") == cell.nodes[2]
        assert await cell.bound_to("data") == there


async def test_a_job_that_is_deleted_while_its_claims_wait_leaves_nothing(target_of: TargetOf) -> None:
    async with a_cell(target_of) as cell:
        cell.provisioner.holds[""] = set(cell.nodes)
        await cell.claim("data")
        await cell.pod("job", "data")
        await cell.asked_for("data")
        await cell.target.drop_pod("job")
        await cell.target.until_is("nothing is left on the claim", lambda: cell.notes("data"), [{}])
        cell.provisioner.holds.clear()
        await cell.pod("next", "data")
        await cell.target.until_running("next")
