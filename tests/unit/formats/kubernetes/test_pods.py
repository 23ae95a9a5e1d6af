from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pods import PodRequirementsReader, pod_requirements
from berth.schemas.constraints import Expression, Term, Toleration


def spec(*containers: dict[str, Any], **more: object) -> PodSpec:
    return msgspec.convert({"containers": list(containers), **more}, PodSpec)


def box(name: str = "a", *, limits: object = None, requests: object = None, **more: object) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": limits, "requests": requests}, **more}


def test_containers_add_up_and_a_missing_request_equals_the_limit() -> None:
    ask = pod_requirements(
        spec(
            box("a", limits={"cpu": "4", "memory": "2Gi", "huawei.com/Ascend910": "8"}, requests={"cpu": "500m"}),
            box("b", requests={"cpu": "250m", "memory": "1Mi"}),
            overhead={"cpu": "50m", "memory": "1Mi"},
        )
    )
    assert (ask.resource, ask.chips, ask.cpu_milli, ask.memory_mib, ask.wrong) == (
        "huawei.com/Ascend910", 8, 800, 2050, "",
    )  # fmt: skip


def test_init_containers_count_where_they_are_larger_and_sidecars_add_up() -> None:
    plain = spec(box(requests={"cpu": "1"}), initContainers=[box("i", requests={"cpu": "3"})])
    assert pod_requirements(plain).cpu_milli == 3000
    sidecar = spec(
        box(requests={"cpu": "1"}),
        initContainers=[box("s", requests={"cpu": "2"}, restartPolicy="Always"), box("i", requests={"cpu": "3"})],
    )
    assert pod_requirements(sidecar).cpu_milli == 5000  # the sidecar runs beside the one that follows it


def test_chips_in_two_containers_refuse_the_pod() -> None:
    chips = {"huawei.com/Ascend910": 1}
    ask = pod_requirements(spec(box("a", limits=chips), box("b", limits=chips)))
    assert ask.wrong == "asks for chips in two containers: a and b; ask in one"
    started = pod_requirements(spec(box("a", limits=chips), initContainers=[box("i", limits=chips)]))
    assert started.wrong == "asks for chips in two containers: i and a; ask in one"


@pytest.mark.parametrize(
    ("init", "always", "held"), [([], "", 6), ([4], "", 6), ([8], "", 8), ([1], "Always", 7), ([8, 1], "Always", 15)]
)
def test_a_pod_holds_the_chips_of_all_its_containers_whoever_placed_it(init: list[int], always: str, held: int) -> None:
    def boxes(counts: list[int], **more: object) -> list[dict[str, Any]]:
        return [box(f"b{at}", limits={"huawei.com/Ascend910": count}, **more) for at, count in enumerate(counts)]

    ask = pod_requirements(spec(*boxes([4, 2]), initContainers=boxes(init, restartPolicy=always)))
    assert (ask.resource, ask.chips) == ("huawei.com/Ascend910", held)
    assert "in one" in ask.wrong


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (spec(box(limits={"huawei.com/Ascend910": "1.5"})), "has spec.containers[0].resources.limits.huawei.com/Ascend910 of '1.5': expected a whole number"),
        (spec(box(limits={"huawei.com/npu": 2}, requests={"huawei.com/npu": 1})), "has spec.containers[0].resources.requests.huawei.com/npu of 1: expected the limit, 2: chips cannot be overcommitted"),
        (spec(box(limits={"huawei.com/npu": 2, "huawei.com/Ascend910": 1})), "asks for chips of more than one kind: huawei.com/Ascend910 and huawei.com/npu; ask for one"),
        (spec(box(), box(requests={"cpu": "much"})), "has spec.containers[1].resources.requests.cpu of 'much': expected a quantity"),
        (spec(box(requests={"memory": "9999Ei"})), "has memory of all containers of"),
        (spec(box(), overhead={"cpu": "x"}), "has spec.overhead.cpu of 'x'"),
        (spec(box(), tolerations=[{"operator": "Sometimes"}]), "has spec.tolerations[0].operator of 'Sometimes': expected one of Equal, Exists"),
        (spec(box(), tolerations=[{"key": "a", "effect": "No"}]), "has spec.tolerations[0].effect of 'No'"),
        (spec(box(), tolerations=[{}]), "has spec.tolerations[0].key of ''"),
        (spec(box(), tolerations=[{"key": "a", "operator": "Exists", "value": "v"}]), "has spec.tolerations[0].value of 'v'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_with_its_value(given: PodSpec, words: str) -> None:
    assert pod_requirements(given).wrong.startswith(words)


@pytest.mark.parametrize("name", ["huawei.com/rdma_shared", "huawei.com/Ascend910B3", "huawei.com/Ascend910B3-memory"])
def test_a_resource_that_is_no_chips_is_one_like_any_other(name: str) -> None:
    found = pod_requirements(spec(box(limits={"huawei.com/Ascend910": 8, name: 2})))
    assert (found.wrong, found.resource, found.chips) == ("", "huawei.com/Ascend910", 8)
    assert found.constraints is not None
    assert found.constraints.resources == ((name, 2),)


@pytest.mark.parametrize("name", ["huawei.com/Ascend910-2c", "huawei.com/npu-core", "huawei.com/Ascend310P-VPro"])
def test_what_is_made_of_chips_counts_as_chips_and_is_refused_with_its_name(name: str) -> None:
    found = pod_requirements(spec(box(limits={name: 1})))
    assert (found.wrong, found.resource, found.chips, found.constraints) == ("", name, 1, None)


def affinity(*terms: dict[str, Any]) -> PodSpec:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return spec(box(), affinity={"nodeAffinity": required})


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ({}, "nodeSelectorTerms of []: expected at least one term"),
        ({"matchExpressions": [{"key": "", "operator": "Exists"}]}, "matchExpressions[0].key of ''"),
        ({"matchExpressions": [{"key": "a", "operator": "Like"}]}, "matchExpressions[0].operator of 'Like'"),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn"}]}, "values of []: expected at least one value for NotIn"),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}, "values of ['x']: expected no values"),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}, "values of ['x']: expected one whole number"),
        ({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["x"]}]}, "matchFields[0].key of 'spec.x': expected metadata.name"),
        ({"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}, "matchFields[0].operator of 'Exists': expected In or NotIn"),
    ],
)  # fmt: skip
def test_terms_that_cannot_be_refuse_the_pod(term: dict[str, Any], words: str) -> None:
    assert words in pod_requirements(affinity(term)).wrong


def test_terms_and_tolerations_become_the_words_of_messages() -> None:
    given = affinity(
        {},
        {
            "matchExpressions": [{"key": "a", "operator": "In", "values": ["1", ""]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
        },
    )
    given = msgspec.structs.replace(
        given, tolerations=spec(tolerations=[{"key": "t", "effect": "NoExecute"}]).tolerations
    )
    ask = pod_requirements(given)
    assert ask.affinity == (Term((Expression("a", "In", ("1", "")), Expression("metadata.name", "In", ("n1",)))),)
    assert ask.tolerations == (Toleration("t", "Equal", "", "NoExecute"),)
    assert ask.wrong == ""


def test_pods_of_one_template_share_their_ask_whatever_their_environment() -> None:
    asks = PodRequirementsReader(entries_max=2)
    first, second = (
        spec(box(requests={"cpu": "1"}, env=[{"name": "VC_TASK_INDEX", "value": str(index)}])) for index in range(2)
    )
    assert asks.ask(first) is asks.ask(second)
    assert asks.ask(spec(box(requests={"cpu": "2"}))).cpu_milli == 2000
    assert asks.ask(spec(box(requests={"cpu": "3"}))).cpu_milli == 3000  # the cache is full and starts anew
    assert asks.ask(first).cpu_milli == 1000
