"""Constraints of pods, one by one: what they allow, what a refusal says, and what wakes a class."""

import msgspec
import pytest

from berth.core.explain.explainer import explain
from berth.core.explain.refusal_text import sentence
from berth.schemas.constraints import Expression, Term
from berth.schemas.facts import Leaf, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Verdict
from berth.schemas.nodes import NodeDescription
from berth.schemas.pod_constraints import (
    HostPort,
    LabelSelector,
    PodConstraints,
    PodTerm,
    PreferredNodes,
    PreferredPods,
    SpreadTerm,
)
from berth.schemas.refusal import NodeReason
from berth.schemas.usage_facts import NamespaceSeen
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import HOST, OneNode, OnePod, having, near, usage_of
from tests.support.core_cells import SUBJECTS, CoreCell

APART = PodConstraints(anti_affinity=(near(HOST, app="a"),))
ZONES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}


def a_cell(zones: dict[str, str] = ZONES, **changes: object) -> CoreCell:
    return CoreCell([in_zone(name, zone) for name, zone in zones.items()], keeps=False, **changes)


def in_zone(name: str, zone: str) -> NodeDescription:
    node = a_node(name)
    return msgspec.structs.replace(node, labels={**node.labels, "zone": zone} if zone else node.labels)


def a_task(constraints: PodConstraints | None = None, *, replicas: int = 1, chips: int = 1, **labels: str) -> Task:
    return Task("worker", replicas, chips, labels=labels, constraints=constraints)


def job(name: str, *tasks: Task) -> JobRequest:
    return a_job(name, tasks=list(tasks))


def nodes_of(verdict: Verdict) -> list[str]:
    assert verdict.placement is not None, verdict.refusal
    return verdict.placement.names()


def placed(cell: CoreCell, name: str, *tasks: Task) -> list[str]:
    cell.ask(job(name, *tasks))
    (verdict,) = cell.decide()
    return nodes_of(verdict)


def reasons(cell: CoreCell, name: str, *tasks: Task) -> dict[NodeReason, int]:
    refusal = cell.refuse(job(name, *tasks))
    return {NodeReason(count.reason): count.nodes for count in refusal.counts}


def say(cell: CoreCell, *pods: OnePod, zones: dict[str, str] = ZONES, **limits: object) -> None:
    nodes = [OneNode(name, {"zone": zone}, **limits) for name, zone in zones.items()]  # type: ignore[arg-type]  # a builder for tests
    cell.fact(SUBJECTS.fact_usage("all"), usage_of("all", nodes, pods))


def test_pods_that_repel_one_another_have_a_node_each() -> None:
    cell = a_cell()
    assert sorted(placed(cell, "one", a_task(APART, replicas=4, app="a"))) == sorted(ZONES)
    assert reasons(cell, "two", a_task(APART, app="a")) == {NodeReason.ANTI_AFFINITY: 4}


def test_the_anti_affinity_of_pods_that_are_there_keeps_others_away_and_only_those() -> None:
    cell = a_cell({"a1": "a"})
    placed(cell, "one", a_task(APART, app="b"))
    assert reasons(cell, "two", a_task(app="a")) == {NodeReason.REPELLED: 1}
    assert placed(cell, "three", a_task(app="b")) == ["a1"]


@pytest.mark.parametrize("zone", ["a", "b"])
def test_a_pod_goes_where_the_pods_of_its_affinity_are(zone: str) -> None:
    cell = a_cell()
    say(cell, OnePod(f"{zone}2", labels={"app": "data"}))
    wanted = PodConstraints(affinity=(near("zone", app="data"),))
    assert placed(cell, "job", a_task(wanted, replicas=2, chips=8)) == [f"{zone}1", f"{zone}2"]


def test_a_gang_with_affinity_to_itself_is_placed_where_all_of_it_has_room() -> None:
    cell = a_cell({"a1": "a", "b1": "b", "b2": "b"})
    wanted = PodConstraints(affinity=(near("zone", app="a"),))
    assert placed(cell, "job", a_task(wanted, replicas=2, chips=8, app="a")) == ["b1", "b2"]


def test_affinity_to_nobody_finds_no_node_until_that_pod_is_there() -> None:
    cell = a_cell()
    say(cell)
    wanted = PodConstraints(affinity=(near("zone", app="data"),))
    assert reasons(cell, "job", a_task(wanted)) == {NodeReason.AFFINITY: 4}
    say(cell, OnePod("b1", labels={"app": "other"}))
    assert cell.decide() == []
    say(cell, OnePod("b1", labels={"app": "data"}))
    assert nodes_of(*cell.decide()) == ["b1"]


def test_spread_keeps_zones_even() -> None:
    cell = a_cell({"a1": "a", "a2": "a", "b1": "b"})
    wanted = PodConstraints(spread=(SpreadTerm("zone", 1, having(app="a")),))
    nodes = placed(cell, "one", a_task(wanted, replicas=4, app="a"))
    assert sorted(node[0] for node in nodes) == ["a", "a", "b", "b"]
    # One node of a zone is all that is left of it, so a zone with fewer chips bars the other.
    refusal = cell.refuse(job("two", a_task(wanted, replicas=8, chips=2, app="a")))
    assert {NodeReason(count.reason) for count in refusal.counts} <= {NodeReason.SPREAD, NodeReason.SHORTAGE}


def test_spread_needs_the_topology_key_and_as_many_values_as_it_says() -> None:
    cell = a_cell({"a1": "a", "b1": "b", "c1": ""})
    spread = SpreadTerm("zone", 1, having(app="a"), min_domains=3)
    assert sorted(placed(cell, "one", a_task(PodConstraints(spread=(spread,)), replicas=2, app="a"))) == ["a1", "b1"]
    assert reasons(cell, "two", a_task(PodConstraints(spread=(spread,)), app="a")) == {NodeReason.SPREAD: 3}


@pytest.mark.parametrize(
    ("taken", "wanted", "fits"),
    [
        (HostPort(80), HostPort(80), False),
        (HostPort(80), HostPort(81), True),
        (HostPort(80), HostPort(80, "UDP"), True),
        (HostPort(80, address="10.0.0.1"), HostPort(80, address="10.0.0.2"), True),
        (HostPort(80, address="10.0.0.1"), HostPort(80), False),
        (HostPort(80), HostPort(80, address="10.0.0.2"), False),
    ],
)
def test_host_ports(taken: HostPort, wanted: HostPort, *, fits: bool) -> None:
    cell = a_cell({"a1": "a"})
    say(cell, OnePod("a1", constraints=PodConstraints(ports=(taken,))), zones={"a1": "a"})
    task = a_task(PodConstraints(ports=(wanted,)))
    if fits:
        assert placed(cell, "job", task) == ["a1"]
    else:
        assert reasons(cell, "job", task) == {NodeReason.PORT: 1}
        say(cell, zones={"a1": "a"})
        assert nodes_of(*cell.decide()) == ["a1"]


def test_other_resources_and_the_number_of_pods() -> None:
    cell = a_cell({"a1": "a"})
    say(cell, OnePod("a1"), zones={"a1": "a"}, pods_max=4, resources={"rdma/hca": 2})
    rdma = PodConstraints(resources=(("rdma/hca", 1),))
    assert placed(cell, "one", a_task(rdma, replicas=2)) == ["a1", "a1"]
    assert reasons(cell, "two", a_task(rdma)) == {NodeReason.RESOURCE: 1}
    assert placed(cell, "three", a_task()) == ["a1"]
    refusal = cell.refuse(job("four", a_task()))
    assert sentence(refusal) == "0 of 1 node fits: 1 has as many pods as it takes"
    say(cell, zones={"a1": "a"}, pods_max=5, resources={"rdma/hca": 3})
    assert [verdict.name for verdict in cell.decide() if verdict.placement] == ["two", "four"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (PodConstraints(spread=(SpreadTerm("rack", 1, having(app="a")),)), "3 lack the label rack of the topology spread"),
        (
            PodConstraints(spread=(SpreadTerm("zone", 1, having(app="b"), min_domains=3),)),
            "3 do not fit the topology spread (topology key zone, 1 lacks it)",
        ),
        (
            PodConstraints(affinity=(near("zone", app="data"),)),
            "3 are not near a pod that the required pod affinity asks for (topology key zone, 1 lacks it)",
        ),
        (
            PodConstraints(affinity=(near("rack", app="data"), near(HOST, app="data"))),
            "3 lack one of the labels kubernetes.io/hostname, rack of the required pod affinity",
        ),
        (
            PodConstraints(anti_affinity=(near(HOST, app="b"), near("zone", app="b"), near("rack", app="b"))),
            "3 are near a pod that the required anti-affinity forbids"
            " (topology keys kubernetes.io/hostname, zone)",
        ),
        (PodConstraints(ports=(HostPort(80), HostPort(443))), "3 have a pod on one of the host ports 80/TCP, 443/TCP that the job needs"),
        (PodConstraints(ports=(HostPort(80, address="10.0.0.9"),)), "3 have a pod on host port 80/TCP that the job needs"),
        (PodConstraints(resources=(("rdma/hca", 2),)), "3 have too little rdma/hca"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_the_constraint_names(wanted: PodConstraints, words: str) -> None:
    zones = {"a1": "a", "a2": "a", "c1": ""}
    cell = a_cell(zones)
    everywhere = [
        OnePod(node, labels={"app": "b"}, constraints=PodConstraints(ports=(HostPort(80),))) for node in zones
    ]
    nodes = [OneNode(name, {"zone": zone} if zone else {}, resources={"rdma/hca": 1}) for name, zone in zones.items()]
    cell.fact(SUBJECTS.fact_usage("all"), usage_of("all", nodes, everywhere))
    refusal = cell.refuse(job("job", a_task(wanted, replicas=3, app="a")))
    assert words in sentence(refusal)
    assert sum(count.nodes for count in refusal.constraints) <= sum(count.nodes for count in refusal.counts)


def test_a_node_counts_for_the_first_constraint_that_excludes_it() -> None:
    cell = a_cell({"a1": "a", "c1": ""})
    spread = (SpreadTerm("zone", 1, having(app="a")), SpreadTerm("rack", 1, having(app="a")))
    refusal = cell.refuse(job("job", a_task(PodConstraints(affinity=(near("zone", app="a"),), spread=spread), app="a")))
    assert sentence(refusal) == (
        "0 of 2 nodes fit: 1 lacks the label zone of the required pod affinity,"
        " 1 lacks the label rack of the topology spread"
    )


def test_pods_that_repel_name_the_keys_that_count_here_alone() -> None:
    cell = a_cell({"a1": "a"})
    by_zone = PodConstraints(anti_affinity=(near("zone", app="a"), near("rack", app="a"), near(HOST, app="x")))
    placed(cell, "one", a_task(by_zone, app="b"))
    assert sentence(cell.refuse(job("two", a_task(app="a")))) == (
        "0 of 1 node fits: 1 is near a pod whose required anti-affinity forbids this one (topology key zone)"
    )


def test_a_refusal_says_what_the_pods_of_the_gang_exclude_among_themselves() -> None:
    cell = a_cell()
    assert sentence(cell.refuse(job("many", a_task(APART, replicas=5, app="a")))) == (
        "4 of 5 pods find room, and 4 of 4 nodes fit; with the pods that find room,"
        f" 4 are near a pod that the required anti-affinity forbids (topology key {HOST})"
    )
    cell = a_cell()
    placed(cell, "there", a_task(app="a"))
    refusal = cell.refuse(job("more", a_task(APART, replicas=4, app="a")))
    assert sentence(refusal) == (
        "3 of 4 pods find room, and 3 of 4 nodes fit:"
        f" 1 is near a pod that the required anti-affinity forbids (topology key {HOST})"
    ), "the reason is there once"


def test_a_plan_by_leaf_whose_pods_exclude_one_another_is_refused_with_the_constraint() -> None:
    cell = a_cell()
    say(cell)
    leaves = [Leaf("l", "", ["a1", "a2"]), Leaf("m", "", ["b1", "b2"])]
    cell.fact(SUBJECTS.fact_topology("switch"), TopologySeen("switch", leaves, places=2))
    by_zone = PodConstraints(anti_affinity=(near("zone", app="a"),))
    label = {"tor-affinity": "normal-schema"}
    wanted = job("job", a_task(by_zone, replicas=2, chips=8, app="a"))
    refusal = cell.refuse(msgspec.structs.replace(wanted, labels=label))
    assert sentence(refusal) == (
        "1 of 2 pods finds room, and 4 of 4 nodes fit; with the pods that find room,"
        " 1 is near a pod that the required anti-affinity forbids (topology key zone)"
    )
    cell.ask(msgspec.structs.replace(job("near", a_task(replicas=2, chips=8)), labels=label))
    assert [verdict.name for verdict in cell.decide() if verdict.placement] == ["near"], (
        "no pod of the refused one is left"
    )


def test_nodes_that_lack_chips_are_not_counted_for_a_constraint() -> None:
    cell = a_cell({"a1": "a", "b1": "b"})
    placed(cell, "full", a_task(chips=8))
    wanted = PodConstraints(spread=(SpreadTerm("rack", 1, having(app="a")),))
    refusal = cell.refuse(job("job", a_task(wanted, app="a")))
    assert sentence(refusal) == (
        "0 of 2 nodes fit: 1 has fewer than 1 free chip, 1 lacks the label rack of the topology spread"
    )


def test_a_namespace_selector_follows_the_labels_of_namespaces() -> None:
    cell = a_cell({"a1": "a"})
    term = PodTerm(HOST, LabelSelector(), (), having(team="x"))
    placed(cell, "one", a_task(PodConstraints(anti_affinity=(term,))))
    assert placed(cell, "two", a_task()) == ["a1"]
    cell.fact(SUBJECTS.fact_namespace("default"), NamespaceSeen("default", {"team": "x"}))
    assert reasons(cell, "three", a_task()) == {NodeReason.REPELLED: 1}
    cell.fact(SUBJECTS.fact_namespace("default"), NamespaceSeen("default", gone=True))
    assert nodes_of(*cell.decide()) == ["a1"]


def test_an_explanation_confirms_what_constraints_decided_and_names_what_they_forbid() -> None:
    cell = a_cell()
    cell.ask(job("one", a_task(APART, replicas=3, chips=8, app="a")), job("two", a_task(APART, chips=2, app="a")))
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    found = cell.scheduler.decide(opening)
    for uid in ("uid-one", "uid-two"):
        told = explain(cell.state, found.round, uid, ledger_seq=2)
        assert told is not None
        assert told.is_confirmed
    cell.scheduler.adopt(found, cell.folded(found.round))
    cell.ask(job("three", a_task(app="a")))
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    record = cell.scheduler.decide(opening).round
    told = explain(cell.state, record, "uid-three", ledger_seq=3)
    assert told is not None
    forbids = f"1 is near a pod whose required anti-affinity forbids this one (topology key {HOST})"
    assert told.sentence == f"0 of 4 nodes fit: 3 have fewer than 1 free chip, {forbids}"


IN_B = Term((Expression("zone", "In", ("b",)),))


@pytest.mark.parametrize(
    ("wanted", "node"),
    [
        (PodConstraints(preferred_nodes=(PreferredNodes(1, IN_B),)), "b1"),
        (PodConstraints(preferred_near=(PreferredPods(50, near("zone", app="data")),)), "b1"),
        (PodConstraints(preferred_apart=(PreferredPods(50, near(HOST, app="web")),)), "a2"),
        (PodConstraints(preferred_spread=(SpreadTerm("zone", 1, having(app="web")),)), "b1"),
        (
            PodConstraints(
                preferred_nodes=(PreferredNodes(1, IN_B),),
                preferred_apart=(PreferredPods(1, near(HOST, app="data")), PreferredPods(9, near(HOST, app="web"))),
            ),
            "b1",
        ),
    ],
)
def test_preferences_decide_between_nodes_with_equal_scores(wanted: PodConstraints, node: str) -> None:
    there = [OnePod("a1", labels={"app": "web"}), OnePod("b2", labels={"app": "data"})]
    for parity, expected in ((False, node), (True, "a1")):
        cell = a_cell(ZONES, reference_parity=parity)
        say(cell, *there)
        assert placed(cell, "job", a_task(wanted)) == [expected], parity
        better = a_cell(ZONES, reference_parity=parity)
        say(better, *there)
        placed(better, "small", Task("worker", 1, 7, node_selector={HOST: "a1"}))
        assert placed(better, "job", a_task(wanted)) == ["a1"], "the score of a node goes before preferences"


def test_preferences_follow_the_pods_of_the_gang_itself() -> None:
    wanted = PodConstraints(preferred_spread=(SpreadTerm("zone", 1, having(app="a")),))
    nodes = placed(a_cell(), "job", a_task(wanted, replicas=4, chips=8, app="a"))
    assert [node[0] for node in nodes] == ["a", "b", "a", "b"]


def test_pods_placed_in_a_round_repel_others_of_the_same_round() -> None:
    cell = a_cell({"a1": "a"})
    say(cell, zones={"a1": "a"})
    cell.ask(job("one", a_task(APART, app="b")), job("two", a_task(app="a")))
    one, two = cell.decide()
    assert nodes_of(one) == ["a1"]
    assert two.refusal is not None
    assert [(count.reason, count.nodes) for count in two.refusal.counts] == [(NodeReason.REPELLED, 1)]


def test_pods_of_a_gang_that_does_not_fit_whole_count_no_longer() -> None:
    cell = a_cell()
    cell.ask(job("one", a_task(APART, replicas=5, app="a")), job("two", a_task(APART, replicas=4, app="a")))
    one, two = cell.decide()
    assert one.refusal is not None
    assert (one.refusal.pods_have, one.refusal.nodes_fit) == (4, 4)
    assert sorted(nodes_of(two)) == sorted(ZONES)


def test_pods_that_are_being_deleted_count_for_affinity_and_no_longer_for_spread() -> None:
    cell = a_cell({"a1": "a", "b1": "b"})
    say(cell, OnePod("b1", labels={"app": "a"}, ending=True), zones={"a1": "a", "b1": "b"})
    spread = PodConstraints(spread=(SpreadTerm("zone", 1, having(app="a")),))
    assert placed(cell, "one", a_task(spread, app="a")) == ["a1"]
    assert placed(cell, "two", a_task(spread, app="a")) == ["b1"]
    assert placed(cell, "three", a_task(PodConstraints(affinity=(near(HOST, app="a"),)), chips=7)) == ["a1"]
    assert reasons(cell, "four", a_task(PodConstraints(anti_affinity=(near(HOST, app="a"),)))) == {
        NodeReason.SHORTAGE: 1,
        NodeReason.ANTI_AFFINITY: 1,
    }


def test_a_term_for_pods_that_lack_a_label_leaves_pods_that_have_it_and_host_ports_alone() -> None:
    cell = a_cell({"a1": "a"})
    others = LabelSelector((Expression("app", "NotIn", ("a",)),))
    ports = PodConstraints(ports=(HostPort(80),))
    placed(cell, "one", a_task(PodConstraints(anti_affinity=(PodTerm(HOST, others, ("default",)),)), app="a"))
    assert placed(cell, "two", a_task(ports, app="a")) == ["a1"]
    assert reasons(cell, "three", a_task(PodConstraints(ports=(HostPort(81),)), app="b")) == {NodeReason.REPELLED: 1}


def test_without_any_fact_of_usage_a_resource_is_not_asked_for() -> None:
    cell = a_cell({"a1": "a", "b1": "b"})
    rdma = PodConstraints(resources=(("rdma/hca", 1),))
    label = {"tor-affinity": "normal-schema"}
    assert placed(cell, "job", a_task(rdma, replicas=2, chips=8)) == ["a1", "b1"]
    switches = a_cell({"a1": "a", "b1": "b"})
    switches.fact(SUBJECTS.fact_topology("switch"), TopologySeen("switch", [Leaf("l", "", ["a1", "b1"])], places=2))
    switches.ask(msgspec.structs.replace(job("job", a_task(rdma, replicas=2, chips=8)), labels=label))
    assert sorted(nodes_of(*switches.decide())) == ["a1", "b1"]
