"""Facts about what nodes offer and what pods of other schedulers use of them."""

from typing import Any

import msgspec

from berth.formats.kubernetes.objects import Node, Pod
from berth.formats.kubernetes.pods import PodRequirementsReader
from berth.formats.kubernetes.storage_objects import CsiNode
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import HostPort, PodConstraints, PodTerm
from berth.schemas.pod_constraints import LabelSelector as Selection
from berth.schemas.usage_facts import UNLIMITED, ClaimName, PodSet, RankName, UsageSeen
from berth.services.inventory.pod_rows import read_row
from berth.services.inventory.usage.collection import Usage
from berth.services.inventory.usage.selector_keys import SelectorKeys

ASKS = PodRequirementsReader()
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EVERYWHERE = {"n1": "d", "n2": "d"}


def apart(app: str, key: str = "app") -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {key: app}}}
    return {"podAntiAffinity": {REQUIRED: [term]}}


def a_node(name: str, **allocatable: str) -> Node:
    amounts = {key.replace("__", "/").replace("_", "-"): value for key, value in allocatable.items()}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": amounts}}, Node)


def a_pod(name: str, *, node: str = "n1", **changes: Any) -> Pod:  # noqa: ANN401  # a builder for tests
    job = changes.get("job")
    annotations = (
        dict(zip(("berth/job", "berth/uid", "berth/attempt", "berth/rank"), map(str, job), strict=True)) if job else {}
    )
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": changes.get("namespace", "team"),
                "uid": f"uid-{name}",
                "labels": changes.get("labels", {}),
                "annotations": annotations,
                "deletionTimestamp": "2026-11-20T09:00:00Z" if changes.get("ending") else None,
            },
            "spec": {"nodeName": node, "containers": [changes.get("box", {"name": "main"})], **changes.get("spec", {})},
            "status": {"phase": changes.get("phase", "Running")},
        },
        Pod,
    )


class Desk:
    """Usage with two nodes, and what it has published."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.usage.replace_nodes([a_node("n1"), a_node("n2")])
        self.domain_of: dict[str, str] = dict(EVERYWHERE)
        self.facts: dict[str, UsageSeen] = {}
        self.published = 0

    def put(self, *pods: Pod, own: bool = False) -> None:
        for pod in pods:
            row = read_row(pod, ASKS)
            assert row is not None
            self.usage.put(row, is_own=own)

    def settle(self) -> UsageSeen:
        for fact in self.usage.due(self.domain_of, 1_000 + self.published):
            self.published += 1
            self.facts[fact.domain] = fact
            self.usage.note_published(fact)
        assert self.usage.due(self.domain_of, 9_999) == [], "nothing has changed, so nothing is said"
        return self.facts["d"]


def sparse(nodes: bytes, entries: bytes, amounts: bytes = b"", width: int = 8) -> list[tuple[int, ...]]:
    columns = [unpack(nodes, 4), unpack(entries, 4), *([unpack(amounts, width)] if amounts else [])]
    return list(zip(*columns, strict=True))


def test_pods_are_counted_and_limits_told() -> None:
    desk = Desk()
    desk.usage.replace_nodes([a_node("n1", pods="110"), a_node("n2")])
    desk.put(a_pod("a"), a_pod("b"), a_pod("c", node="n2", phase="Succeeded"))
    fact = desk.settle()
    assert unpack_names(fact.names) == ["n1", "n2"]
    assert unpack(fact.pods, 4) == [2, 0]
    assert unpack(fact.pods_max, 4) == [110, UNLIMITED]
    assert (fact.pod_sets, fact.terms, fact.ports, fact.claims) == ([], [], [], [])


def test_other_resources_by_what_is_offered_and_what_is_used() -> None:
    desk = Desk()
    offered = {
        "cpu": "8",
        "memory": "1Gi",
        "pods": "9",
        "rdma__hca": "4",
        "hugepages_2Mi": "0",
        "huawei.com__Ascend910": "8",
        "huawei.com__Ascend910_2c": "4",
        "huawei.com__rdma": "3",
    }
    desk.usage.replace_nodes([a_node("n1", **offered), a_node("n2", ephemeral_storage="1500m", odd__one="many")])
    box = {"name": "main", "resources": {"requests": {"rdma/hca": "1", "ephemeral-storage": "1Ki", "cpu": "1"}}}
    desk.put(a_pod("a", box=box), a_pod("b", box=box))
    fact = desk.settle()
    assert fact.resources == ["ephemeral-storage", "huawei.com/rdma", "rdma/hca"]
    assert sparse(fact.offered_node, fact.offered_index, fact.offered) == [(0, 1, 3), (0, 2, 4), (1, 0, 1)]
    assert sparse(fact.used_node, fact.used_index, fact.used) == [(0, 0, 2048), (0, 2, 2)]


def test_labels_are_told_only_where_a_selector_names_them() -> None:
    desk = Desk()
    labels = {"app": "web", "hash": "12345"}
    desk.put(a_pod("a", labels=labels), a_pod("b", labels=labels | {"hash": "6"}), a_pod("c", node="n2", ending=True))
    assert desk.settle().pod_sets == []
    desk.put(a_pod("d", node="n2", labels=labels, spec={"affinity": apart("web")}))
    fact = desk.settle()
    assert fact.pod_sets == [PodSet("team", {}, ending=True), PodSet("team", {"app": "web"})]
    assert sparse(fact.set_node, fact.set_index, fact.set_pods, 4) == [(0, 1, 2), (1, 0, 1), (1, 1, 1)]
    desk.usage.drop("uid-d")
    assert desk.settle().pod_sets == fact.pod_sets, "keys that a selector named stay"


def test_selectors_of_pods_that_wait_and_of_requests_count() -> None:
    for first in (True, False):
        desk = Desk()
        desk.put(a_pod("a", labels={"app": "web", "tier": "x"}))
        waiting = ASKS.ask(a_pod("w", spec={"affinity": apart("web")}).spec).constraints
        if first:
            desk.usage.note_selectors("w", waiting)
        else:
            request = JobRequest("team", "j", "u", "", [Task("t", 1, 0, constraints=waiting)])
            desk.usage.note_job(JobSeen("team", "j", "u", "accepted", 1, request=request))
        assert desk.usage.is_changed
        assert desk.settle().pod_sets == [PodSet("team", {"app": "web"})]


def test_a_selector_of_everything_needs_no_key() -> None:
    keys = SelectorKeys()
    keys.note("a", [PodConstraints(affinity=(PodTerm("zone", None),))])
    assert not keys.has_selectors
    keys.note("a", [PodConstraints(affinity=(PodTerm("zone", Selection()),))])
    assert (keys.has_selectors, keys.selectable({"app": "web"})) == (True, {})


def test_terms_ports_and_claims_of_pods_are_told_once_a_node() -> None:
    desk = Desk()
    box = {"name": "main", "ports": [{"containerPort": 1, "hostPort": 80}]}
    spec = {"affinity": apart("web"), "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    desk.put(*(a_pod(name, box=box, spec=spec) for name in "ab"), a_pod("c", node="n2", box=box))
    fact = desk.settle()
    assert fact.ports == [HostPort(80)]
    assert sparse(fact.port_node, fact.port_index) == [(0, 0), (1, 0)]
    assert fact.claims == [ClaimName("team", "c")]
    assert sparse(fact.claim_node, fact.claim_index) == [(0, 0)]
    assert [term.namespaces for term in fact.terms] == [("team",)]
    assert sparse(fact.term_node, fact.term_index) == [(0, 0)]


def test_what_cannot_be_read_of_a_pod_takes_nothing_away_from_the_rest() -> None:
    desk = Desk()
    box = {"name": "main", "ports": [{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 99999}]}
    spec = {
        "volumes": [{"name": "d", "iscsi": {"iqn": "x"}}],
        "resourceClaims": [{"name": "r"}],
        "affinity": apart("web"),
    }
    desk.put(a_pod("a", box=box, spec=spec))
    fact = desk.settle()
    assert (fact.ports, len(fact.terms)) == ([HostPort(80)], 1)


def test_volumes_that_a_node_takes() -> None:
    desk = Desk()

    def csi(name: str, count: int | None) -> CsiNode:
        drivers = [{"name": "b.csi", "allocatable": {"count": count}}, {"name": "a.csi"}]
        return msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CsiNode)

    desk.usage.volume_limits.replace([csi("n1", 3), csi("n2", None)])
    fact = desk.settle()
    assert (fact.drivers, sparse(fact.limit_node, fact.limit_index, fact.limit, 4)) == (["b.csi"], [(0, 0, 3)])
    desk.usage.volume_limits.put(csi("n2", 0))
    fact = desk.settle()
    assert sparse(fact.limit_node, fact.limit_index, fact.limit, 4) == [(0, 0, 3), (1, 0, 0)]
    desk.usage.volume_limits.drop(csi("n1", 3))
    desk.usage.volume_limits.replace([])
    assert desk.settle().drivers == []


def job_of(labels: dict[str, str]) -> JobSeen:
    tasks = [Task("a", 1, 0), Task("b", 2, 0, labels=labels)]
    return JobSeen("team", "j", "u", "accepted", 1, request=JobRequest("team", "j", "u", "", tasks))


def test_of_pods_that_berth_placed_only_changed_labels_are_told() -> None:
    desk = Desk()
    desk.usage.note_selectors("w", ASKS.ask(a_pod("w", spec={"affinity": apart("web")}).spec).constraints)
    box = {"name": "main", "ports": [{"containerPort": 1, "hostPort": 80}]}
    desk.put(*(a_pod(f"p{rank}", job=("j", "u", 1, rank), box=box, labels={"app": "old"}) for rank in (1, 2)), own=True)
    fact = desk.settle()
    assert (fact.pods, fact.ports, fact.pod_sets, fact.relabelled) == (b"", [], [], [])
    desk.usage.note_job(job_of({"app": "old"}))
    assert desk.settle() == fact
    desk.put(a_pod("p2", job=("j", "u", 1, 2), box=box, labels={"app": "new", "other": "x"}), own=True)
    fact = desk.settle()
    assert (fact.relabelled, fact.pod_sets) == ([RankName("u", 1, 2)], [PodSet("team", {"app": "new"})])
    assert (fact.pods, fact.ports) == (b"", [])
    desk.put(a_pod("p2", job=("j", "u", 1, 2), labels={"app": "old"}), own=True)
    assert desk.settle().relabelled == []


def test_a_pod_whose_attempt_is_over_is_like_any_other() -> None:
    desk = Desk()
    pod = a_pod("p", job=("j", "u", 1, 0), ending=True)
    desk.put(pod, own=True)
    assert desk.settle().pods == b""
    desk.put(pod)
    assert unpack(desk.settle().pods, 4) == [1, 0]


def test_a_node_that_changes_its_domain_is_told_by_the_new_one_and_no_longer_by_the_old() -> None:
    desk = Desk()
    desk.put(a_pod("a"), a_pod("b", node="n2"))
    desk.settle()
    desk.domain_of = {"n1": "d", "n2": "e"}
    assert unpack_names(desk.settle().names) == ["n1"]
    assert unpack(desk.facts["e"].pods, 4) == [1]
    desk.domain_of = {"n2": "e"}
    assert desk.settle().names == b"", "nothing is left in the domain"


def test_pods_on_a_node_that_is_not_there_are_told_when_it_comes() -> None:
    desk = Desk()
    desk.put(a_pod("a", node="n3"))
    desk.settle()
    desk.domain_of["n3"] = "d"
    assert unpack(desk.settle().pods, 4) == [0, 0, 1]


def test_after_a_restart_only_what_differs_is_said() -> None:
    desk = Desk()
    desk.put(a_pod("a"))
    before = desk.settle()
    again = Desk()
    again.usage.restore([before, UsageSeen("gone", before.names)])
    again.put(a_pod("a"))
    due = again.usage.due(again.domain_of, 5)
    assert [(fact.domain, fact.names) for fact in due] == [("gone", b"")]


def test_a_change_that_no_fact_tells_is_no_reason_to_publish() -> None:
    desk = Desk()
    desk.put(a_pod("a", labels={"heartbeat": "1"}))
    desk.settle()
    desk.put(a_pod("a", labels={"heartbeat": "2"}))
    assert desk.usage.is_changed
    assert desk.usage.due(desk.domain_of, 5) == []
    assert not desk.usage.is_changed
