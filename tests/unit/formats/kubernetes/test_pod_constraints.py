"""Constraints of pods in the normal form of messages, and pods whose constraints cannot be."""

from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pods import PodRequirements, PodRequirementsReader, pod_requirements
from berth.schemas.constraints import Expression, Term
from berth.schemas.pod_constraints import (
    HostPort,
    LabelSelector,
    PodConstraints,
    PodTerm,
    PreferredNodes,
    PreferredPods,
    SpreadTerm,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
META = Meta(name="p-0", namespace="team", labels={"app": "web", "rev": "7"})


def ask_of(*containers: dict[str, Any], **more: object) -> PodRequirements:
    return pod_requirements(msgspec.convert({"containers": list(containers), **more}, PodSpec), META)


def constraints(*containers: dict[str, Any], **more: object) -> PodConstraints:
    ask = ask_of(*containers, **more)
    assert ask.wrong == ""
    assert ask.constraints is not None
    return ask.constraints


def test_a_pod_without_constraints_has_none() -> None:
    ask = ask_of({"name": "a", "ports": [{"containerPort": 80}]}, volumes=[{"name": "v", "emptyDir": {}}])
    assert (ask.wrong, ask.constraints) == ("", None)


def test_selectors_are_expressions_in_one_order_each_once() -> None:
    selector = {
        "matchLabels": {"tier": "front", "app": "web"},
        "matchExpressions": [
            {"key": "app", "operator": "In", "values": ["web"]},
            {"key": "app", "operator": "NotIn", "values": ["z", "b", "b"]},
        ],
    }
    term = {"labelSelector": selector, "topologyKey": "zone"}
    (found,) = constraints(affinity={"podAffinity": {REQUIRED: [term, term]}}).affinity
    assert found.selector == LabelSelector(
        (
            Expression("app", "In", ("web",)),
            Expression("app", "NotIn", ("b", "z")),
            Expression("tier", "In", ("front",)),
        )
    )


@pytest.mark.parametrize(
    ("given", "names", "selector"),
    [
        ({}, ("team",), None),
        ({"namespaces": ["b", "a", "b"]}, ("a", "b"), None),
        ({"namespaceSelector": {}}, (), LabelSelector()),
        (
            {"namespaces": ["a"], "namespaceSelector": {"matchLabels": {"k": "v"}}},
            ("a",),
            LabelSelector((Expression("k", "In", ("v",)),)),
        ),
        ({"namespaces": [], "namespaceSelector": None}, ("team",), None),
    ],
)
def test_namespaces_of_a_term(given: dict[str, Any], names: tuple[str, ...], selector: LabelSelector | None) -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, **given}
    found = constraints(affinity={"podAntiAffinity": {REQUIRED: [term]}}).anti_affinity
    assert found == (PodTerm("zone", LabelSelector(), names, selector),)


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    terms = [{"topologyKey": "a"}, {"topologyKey": "b", "labelSelector": {}}]
    first, second = constraints(affinity={"podAffinity": {REQUIRED: terms}}).affinity
    assert (first.selector, second.selector) == (None, LabelSelector())


def test_spread_with_its_defaults_and_keys_of_the_pod() -> None:
    given = [
        {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["rev", "missing"]},
        {"topologyKey": "host", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {},
         "minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
    ]  # fmt: skip
    found = constraints(topologySpreadConstraints=given)
    own = LabelSelector((Expression("app", "In", ("web",)), Expression("rev", "In", ("7",))))
    assert found.spread == (SpreadTerm("zone", 1, own),)
    assert found.preferred_spread == (SpreadTerm("host", 2, None, 3, by_affinity=False, by_taints=True),)


def test_host_ports_of_containers_that_keep_running() -> None:
    found = constraints(
        {"name": "a", "ports": [{"containerPort": 1, "hostPort": 8080, "hostIP": "0.0.0.0"}]},  # noqa: S104
        {"name": "b", "ports": [{"containerPort": 1, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}]},
        initContainers=[
            {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 53}]},
            {"name": "i", "ports": [{"containerPort": 1, "hostPort": 9999}]},
        ],
    )
    assert found.ports == (HostPort(53), HostPort(53, "UDP", "10.0.0.1"), HostPort(8080))


def test_resources_beside_chips_cpu_and_memory_count_in_base_units() -> None:
    def box(name: str, **requests: str) -> dict[str, Any]:
        named = {key.replace("__", "/").replace("_", "-"): value for key, value in requests.items()}
        return {"name": name, "resources": {"requests": {"cpu": "1", "huawei.com/Ascend910": "0"} | named}}

    found = constraints(
        box("a", rdma__hca="1", hugepages_2Mi="64Mi", ephemeral_storage="1Gi"),
        box("b", rdma__hca="2", ephemeral_storage="500m", example__none="0"),
        initContainers=[box("i", rdma__hca="4")],
        overhead={"ephemeral-storage": "1"},
    )
    assert found.resources == (
        ("ephemeral-storage", (1 << 30) + 2), ("hugepages-2Mi", 64 << 20), ("rdma/hca", 4),
    )  # fmt: skip


def test_resources_of_the_whole_pod_take_the_place_of_the_sum() -> None:
    container = {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    ask = ask_of(container, resources={"requests": {"cpu": "3"}}, overhead={"cpu": "1"})
    assert (ask.cpu_milli, ask.memory_mib) == (4000, 1024)


def test_claims_by_name_and_those_made_for_the_pod() -> None:
    volumes = [
        {"name": "b", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "again", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "cm", "configMap": {"name": "x"}},
    ]
    assert constraints(volumes=volumes).claims == ("p-0-own", "shared")


def test_preferences_are_kept_with_their_weights() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    weighted = [{"weight": 7, "podAffinityTerm": term}]
    nodes = [
        {"weight": 3, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}},
        {"weight": 1, "preference": {}},
    ]
    found = constraints(
        affinity={
            "nodeAffinity": {PREFERRED: nodes},
            "podAffinity": {PREFERRED: weighted},
            "podAntiAffinity": {PREFERRED: weighted},
        }
    )
    expected = PodTerm("zone", LabelSelector((Expression("app", "In", ("web",)),)), ("team",))
    assert found == PodConstraints(
        preferred_nodes=(PreferredNodes(3, Term((Expression("disk", "Exists"),))),),
        preferred_near=(PreferredPods(7, expected),),
        preferred_apart=(PreferredPods(7, expected),),
    )


SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
TERM = {"topologyKey": "zone"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": ""}]}}}, f"has spec.affinity.podAffinity.{REQUIRED}[0].topologyKey of ''"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [TERM | {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}]}}}, "labelSelector.matchExpressions[0].operator of 'Gt': expected one of In, NotIn, Exists, DoesNotExist"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [TERM | {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]}}}, "namespaceSelector.matchExpressions[0].values of []: expected at least one value for In"),
        ({"affinity": {"podAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": TERM}]}}}, f"spec.affinity.podAffinity.{PREFERRED}[0].weight of 0: expected 1 to 100"),
        ({"affinity": {"podAffinity": {PREFERRED: [{"weight": 1}]}}}, "[0].podAffinityTerm.topologyKey of ''"),
        ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 101, "preference": {}}]}}}, "weight of 101: expected 1 to 100"),
        ({"topologySpreadConstraints": [SPREAD | {"maxSkew": 0}]}, "has spec.topologySpreadConstraints[0].maxSkew of 0: expected at least 1"),
        ({"topologySpreadConstraints": [SPREAD | {"minDomains": 0}]}, "minDomains of 0: expected at least 1"),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "Maybe"}]}, "whenUnsatisfiable of 'Maybe': expected one of DoNotSchedule, ScheduleAnyway"),
        ({"topologySpreadConstraints": [SPREAD | {"nodeTaintsPolicy": "Some"}]}, "nodeTaintsPolicy of 'Some': expected one of Honor, Ignore"),
        ({"containers": [{"ports": [{"hostPort": 80}, {"hostPort": 80}]}]}, "has spec.containers[0].ports[1].hostPort of 80: expected another port than spec.containers[0].ports[0].hostPort"),
        ({"containers": [{"ports": [{"hostPort": 80}]}, {"ports": [{"hostPort": 80, "hostIP": "10.0.0.1"}]}]}, "has spec.containers[1].ports[0].hostPort of 80: expected another port than spec.containers[0]"),
        ({"containers": [{"ports": [{"hostPort": 70000}]}]}, "hostPort of 70000: expected 1 to 65535"),
        ({"containers": [{"ports": [{"hostPort": 80, "protocol": "ICMP"}]}]}, "protocol of 'ICMP': expected one of TCP, UDP, SCTP"),
        ({"volumes": [{"name": "d", "iscsi": {"iqn": "x"}}]}, "has spec.volumes[0].iscsi of 'd': expected a persistentVolumeClaim in its place"),
        ({"resourceClaims": [{"name": "gpu"}]}, "has spec.resourceClaims of ['gpu']: expected none: dynamic resource allocation is not supported"),
        ({"containers": [{"resources": {"requests": {"rdma/hca": "many"}}}]}, "has spec.containers[0].resources.requests.rdma/hca of 'many': expected a quantity"),
        ({"containers": [{"resources": {"requests": {"ephemeral-storage": "9Ei"}}}]}, "has ephemeral-storage of all containers of"),
    ],
)  # fmt: skip
def test_a_pod_whose_constraints_cannot_be_is_told_where(given: dict[str, Any], words: str) -> None:
    ask = pod_requirements(msgspec.convert(given, PodSpec), META)
    assert words in ask.wrong


def test_equal_templates_share_their_ask_only_where_nothing_else_is_read() -> None:
    def asked(spec: dict[str, Any], *names: str) -> list[PodRequirements]:
        asks = PodRequirementsReader()
        return [
            asks.ask(msgspec.convert(spec, PodSpec), Meta(name=name, namespace=name, labels={"rev": name}))
            for name in names
        ]

    plain = asked({"topologySpreadConstraints": [SPREAD]}, "a", "b")
    assert plain[0] is plain[1]
    for spec in (
        {"affinity": {"podAffinity": {REQUIRED: [TERM]}}},
        {"topologySpreadConstraints": [SPREAD | {"labelSelector": {}, "matchLabelKeys": ["rev"]}]},
        {"volumes": [{"name": "own", "ephemeral": {}}]},
    ):
        first, second = asked(spec, "a", "b")
        assert first != second, spec
