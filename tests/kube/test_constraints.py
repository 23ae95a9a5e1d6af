"""Constraints of pods as a user of the cluster sees them: made, described, deleted, and what then happens."""

from typing import Any, Final

import pytest

from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import Tree, a_spec, a_volcano_job

pytestmark = pytest.mark.timeout(240)
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
LONG: Final = {"berth/run-for": "600s"}
RDMA: Final = "rdma/hca"
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}"}
"""


@pytest.fixture
def target(target_of: TargetOf) -> InvalidInputCell:
    return target_of(TOPOLOGY, {"binder": {"notice_again_s": 1}})  # also where only a number of the sentence changes


def term(app: str, key: str) -> Tree:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def apart(app: str, key: str = HOST) -> Tree:
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term(app, key)]}}}


def near(app: str, key: str = ZONE) -> Tree:
    return {"affinity": {"podAffinity": {REQUIRED: [term(app, key)]}}}


def spread(app: str, key: str = ZONE) -> Tree:
    one = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [one | {"labelSelector": {"matchLabels": {"app": app}}}]}


async def make(target: InvalidInputCell, name: str, app: str, **more: object) -> None:
    await target.pod(name, a_spec(1) | more, labels={"app": app}, annotations=LONG)


async def node_of(target: InvalidInputCell, name: str) -> str:
    pod: Tree = await target.api.get(f"/api/v1/namespaces/{target.namespace}/pods/{name}")
    return str(pod["spec"].get("nodeName", ""))


async def runs_on(target: InvalidInputCell, *names: str) -> list[str]:
    await target.until_running(*names)
    return [await node_of(target, name) for name in names]


async def waits(target: InvalidInputCell, name: str, words: str) -> None:
    """The pod's condition says that it is not scheduled, and why."""

    async def told() -> bool:
        status, reason, message = await target.condition(name)
        return (status, reason) == ("False", "Unschedulable") and words in message

    await target.until(f"{name} waits: {words}", told)
    assert await node_of(target, name) == ""


async def set_zones(target: InvalidInputCell, *zones: str) -> list[str]:
    """Nodes by name, each in its zone; empty for none."""
    names = sorted(node["metadata"]["name"] for node in await target.api.items("/api/v1/nodes"))
    for name, zone in zip(names, zones, strict=True):
        await target.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {ZONE: zone or None}}})

    async def known() -> list[str]:
        nodes = {node.name: node for node in await target.nodes()}
        return [nodes[name].labels.get(ZONE, "") for name in names]

    await target.until_is("the zones are known", known, list(zones))
    return names


async def test_pods_that_must_be_apart(target: InvalidInputCell) -> None:
    await target.cell.start()
    for number in range(4):
        await make(target, f"apart-{number}", "apart", **apart("apart"))
    nodes = await runs_on(target, *(f"apart-{number}" for number in range(4)))
    assert len(set(nodes)) == 4
    await make(target, "late", "apart", **apart("apart"))
    await waits(target, "late", "4 are near a pod that the required anti-affinity forbids")
    await make(target, "meek", "apart")
    await waits(target, "meek", "4 are near a pod whose required anti-affinity forbids this one")
    await make(target, "other", "other")
    await target.until_running("other")
    await target.drop_pod("apart-2")
    assert await runs_on(target, "late") == [nodes[2]]
    await waits(target, "meek", "4 are near a pod whose required anti-affinity forbids this one")


async def test_pods_of_other_schedulers_count(target: InvalidInputCell) -> None:
    names = await start_in_zones(target, "z1", "z1", "z2", "z2")
    strange = {"containers": [{"name": "main", "image": "none"}], "schedulerName": "other", "nodeName": names[0]}
    await target.pod("strange", strange | apart("shy", ZONE), labels={"app": "strange"})
    await make(target, "shy", "shy")
    assert (await runs_on(target, "shy"))[0] in names[2:]
    await make(target, "friend", "friend", **near("strange"))
    assert (await runs_on(target, "friend"))[0] in names[:2]
    await make(target, "foe", "foe", **apart("strange", ZONE))
    assert (await runs_on(target, "foe"))[0] in names[2:]
    await make(target, "foe-of-all", "foe", **_both(apart("strange", ZONE), apart("foe", ZONE)))
    await waits(target, "foe-of-all", "4 are near a pod that the required anti-affinity forbids")
    await target.drop_pod("strange")
    assert (await runs_on(target, "foe-of-all"))[0] in names[:2]


async def test_pods_that_must_be_near_others_wait_for_them(target: InvalidInputCell) -> None:
    names = await start_in_zones(target, "z1", "z2", "z2", "")
    await make(target, "near", "near", **near("anchor"))
    await waits(
        target,
        "near",
        f"4 are not near a pod that the required pod affinity asks for (topology key {ZONE}, 1 lacks it)",
    )
    await make(target, "anchor", "anchor", nodeSelector={HOST: names[1]})
    assert (await runs_on(target, "near"))[0] in names[1:3]
    await make(target, "first", "series", **near("series"))
    assert (await runs_on(target, "first"))[0] in names[:3], "the first of a series may be wherever the key is"


async def test_a_gang_is_spread_whole_or_waits(target: InvalidInputCell) -> None:
    names = await start_in_zones(target, "z1", "z1", "z1", "z2")
    job = a_volcano_job("even", 4, 1)
    template = job["spec"]["tasks"][0]["template"]
    template["metadata"]["labels"] = {"app": "even"}
    template["spec"] |= spread("even")
    await target.api.post(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs", job)
    pods = await target.cell.until_pods(target.namespace, {"Running": 4})
    on = [pod["spec"]["nodeName"] for pod in pods]
    assert sum(node == names[3] for node in on) == 2, on
    await make(target, "nowhere", "nowhere", **spread("nowhere", "example.com/floor"))
    await waits(target, "nowhere", "4 lack the label example.com/floor of the topology spread")
    await target.api.patch(f"/api/v1/nodes/{names[2]}", {"metadata": {"labels": {"example.com/floor": "1"}}})
    assert await runs_on(target, "nowhere") == [names[2]]


async def test_host_ports_other_resources_and_the_number_of_pods(target: InvalidInputCell) -> None:
    names = await start_in_zones(target, "", "", "", "")
    await target.api.patch(
        f"/api/v1/nodes/{names[1]}/status", {"status": {"allocatable": {RDMA: "2"}, "capacity": {RDMA: "2"}}}
    )
    await target.api.patch(
        f"/api/v1/nodes/{names[2]}/status", {"status": {"allocatable": {"pods": "1"}, "capacity": {"pods": "1"}}}
    )
    here = {"nodeSelector": {HOST: names[0]}}
    await make(target, "port-1", "port", **with_container(here, ports=[{"containerPort": 1, "hostPort": 8080}]))
    await target.until_running("port-1")
    await make(target, "port-2", "port", **with_container(here, ports=[{"containerPort": 2, "hostPort": 8080}]))
    await waits(target, "port-2", "1 has a pod on host port 8080/TCP that the job needs")
    await target.drop_pod("port-1")
    await target.until_running("port-2")
    for number in range(2):
        await make(target, f"rdma-{number}", "rdma", **with_container({}, resources=[RDMA]))
    assert await runs_on(target, "rdma-0", "rdma-1") == [names[1]] * 2
    await make(target, "rdma-2", "rdma", **with_container({}, resources=[RDMA]))
    await waits(target, "rdma-2", f"4 have too little {RDMA}")
    await target.drop_pod("rdma-0")
    assert await runs_on(target, "rdma-2") == [names[1]]
    there = {"nodeSelector": {HOST: names[2]}}
    await make(target, "only", "full", **there)
    await target.until_running("only")
    await make(target, "crowd", "full", **there)
    await waits(target, "crowd", "1 has as many pods as it takes")
    await target.drop_pod("only")
    await target.until_running("crowd")


async def test_a_pod_that_contradicts_itself_is_told(target: InvalidInputCell) -> None:
    await target.cell.start()
    ports: list[Tree] = [
        {"containerPort": 1, "hostPort": 8080},
        {"containerPort": 2, "hostPort": 8080, "hostIP": "10.0.0.1"},
    ]
    await make(target, "twice", "twice", **with_container({}, ports=ports))
    await waits(
        target, "twice", "pod twice has spec.containers[0].ports[1].hostPort of 8080: expected another port than"
    )
    iscsi: dict[str, Any] = {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-11.com.example:disk", "lun": 0}
    await make(target, "disk", "disk", volumes=[{"name": "d", "iscsi": iscsi}])
    await waits(target, "disk", "pod disk has spec.volumes[0].iscsi of 'd': expected a persistentVolumeClaim")
    await target.drop_pod("twice")
    await make(target, "twice", "twice", **with_container({}, ports=ports[:1]))
    await target.until_running("twice")


async def test_selectors_that_are_invalid_are_told_by_the_server_or_by_berth(target: InvalidInputCell) -> None:
    await target.cell.start()
    pods = f"/api/v1/namespaces/{target.namespace}/pods"
    wrong = {"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = {kind: {REQUIRED: [{"topologyKey": HOST, "labelSelector": wrong}]}}
        pod = {"metadata": {"name": "wrong"}, "spec": a_spec(1) | {"affinity": affinity}}
        assert await target.api.status_of("POST", pods, pod) == 422
    newer = {"key": "generation", "operator": "Gt", "values": ["seven"]}  # the server does not read the number
    terms = {"nodeSelectorTerms": [{"matchExpressions": [newer]}]}
    await make(target, "newer", "newer", affinity={"nodeAffinity": {REQUIRED: terms}})
    field = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values"
    words = f"pod newer has {field} of ['seven']: expected one whole number for Gt"
    await waits(target, "newer", words)
    await target.until_event("Pod", "newer", "FailedScheduling", words)
    await target.drop_pod("newer")
    await target.until_is("nothing is held", lambda: target.hold("pod.newer"), "")
    assert await target.status("pod.newer") is None, "no request was made"


async def start_in_zones(target: InvalidInputCell, *zones: str) -> list[str]:
    await target.cell.start()
    return await set_zones(target, *zones)


def with_container(spec: Tree, *, ports: list[Tree] | None = None, resources: list[str] | None = None) -> Tree:
    """Fields of a spec whose container has host ports, and one of each of these resources."""
    (container,) = a_spec(1)["containers"]
    for side in ("requests", "limits"):
        container["resources"][side] |= dict.fromkeys(resources or (), "1")
    return spec | {"containers": [container | ({"ports": ports} if ports else {})]}


def _both(one: Tree, other: Tree) -> Tree:
    terms = [*one["affinity"]["podAntiAffinity"][REQUIRED], *other["affinity"]["podAntiAffinity"][REQUIRED]]
    return {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}


async def test_claims_that_are_missing_or_tied_to_other_nodes(target: InvalidInputCell) -> None:
    names = await start_in_zones(target, "", "", "", "")
    await make(target, "claims", "claims", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    await waits(target, "claims", "4 have no access to a volume of the job")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "own"}
    await bound_claim(target, "data", claim, node=names[3])
    assert await runs_on(target, "claims") == [names[3]]
    await bound_claim(target, "far", claim, node="elsewhere")
    await make(target, "far", "far", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "far"}}])
    await waits(target, "far", "4 have no access to a volume of the job")


async def bound_claim(target: InvalidInputCell, name: str, spec: Tree, *, node: str) -> None:
    """A claim and its volume, bound to one another, which can be used from one node."""
    volume = f"{target.namespace}-{name}"
    here = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    await target.api.post(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": volume},
            "spec": {
                "accessModes": spec["accessModes"],
                "capacity": spec["resources"]["requests"],
                "storageClassName": spec["storageClassName"],
                "claimRef": {"namespace": target.namespace, "name": name},
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
            },
        },
    )
    claims = f"/api/v1/namespaces/{target.namespace}/persistentvolumeclaims"
    bound = {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    await target.api.post(claims, {"metadata": bound, "spec": spec | {"volumeName": volume}})
    await target.api.patch(f"/api/v1/persistentvolumes/{volume}/status", {"status": {"phase": "Bound"}})
    await target.api.patch(f"{claims}/{name}/status", {"status": {"phase": "Bound"}})
