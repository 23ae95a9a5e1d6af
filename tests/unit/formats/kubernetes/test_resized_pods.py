"""Resources of pods that are resized, and of pods with an amount for the whole, as kube-scheduler counts them."""

from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pods import PodRequirements, pod_requirements
from berth.formats.kubernetes.resized_pods import counted_spec

INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]


def box(name: str, requests: dict[str, Any] | None, **more: object) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests or {}}, **more}


def state(name: str, actual: dict[str, Any] | None, allocated: dict[str, Any] | None = None) -> dict[str, Any]:
    resources = None if actual is None else {"requests": actual}
    return {"name": name, "resources": resources, "allocatedResources": allocated}


def counted(spec: dict[str, Any], **status: object) -> PodRequirements:
    pod = msgspec.convert({"spec": spec, "status": status}, Pod)
    return pod_requirements(counted_spec(pod))


@pytest.mark.parametrize(
    ("spec", "allocated", "actual", "conditions", "cpu_milli"),
    [
        ("2", "2", "2", [], 2_000),
        ("4", "2", "2", DEFERRED, 4_000),
        ("4", "2", "2", [], 4_000),
        ("4", "2", "2", INFEASIBLE, 2_000),
        ("4", "3", "2", INFEASIBLE, 3_000),
        ("1", "1", "4", [], 4_000),
        ("1", "3", "2", [], 3_000),
        ("1000m", "1", "1", [], 1_000),
    ],
)
def test_the_largest_of_wanted_allocated_and_actual_counts(
    spec: str, allocated: str, actual: str, conditions: list[dict[str, str]], cpu_milli: int
) -> None:
    found = counted(
        {"containers": [box("a", {"cpu": spec}), box("b", {"cpu": "1"})]},
        containerStatuses=[state("a", {"cpu": actual}, {"cpu": allocated})],
        conditions=conditions,
    )
    assert found.cpu_milli == cpu_milli + 1_000


def test_a_container_without_resources_in_its_status_counts_as_it_asks() -> None:
    found = counted({"containers": [box("a", {"cpu": "1"})]}, containerStatuses=[state("a", None, {"cpu": "9"})])
    assert found.cpu_milli == 1_000


def test_init_containers_count_by_their_status_if_they_keep_running() -> None:
    spec = {
        "containers": [box("main", {"cpu": "1"})],
        "initContainers": [box("side", {"cpu": "1"}, restartPolicy="Always"), box("once", {"cpu": "1"})],
    }
    states = [state("side", {"cpu": "5"}), state("once", {"cpu": "50"})]
    assert counted(spec, initContainerStatuses=states).cpu_milli == 6_000


def test_chips_are_those_of_the_spec() -> None:
    resource = "huawei.com/Ascend910"
    spec = {"containers": [{"name": "a", "resources": {"limits": {resource: 8}, "requests": {resource: 8, "cpu": 1}}}]}
    found = counted(spec, containerStatuses=[state("a", {"cpu": "3"}, {resource: "2", "cpu": "3"})])
    assert (found.wrong, found.chips, found.cpu_milli) == ("", 8, 3_000)


def test_a_status_that_is_no_quantity_does_not_count() -> None:
    found = counted({"containers": [box("a", {"cpu": "1"})]}, containerStatuses=[state("a", {"cpu": "many"})])
    assert (found.wrong, found.cpu_milli) == ("", 1_000)


def test_resources_of_the_whole_pod_are_resized_too() -> None:
    spec = {"containers": [box("a", {"cpu": "1"})], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "1"}}
    status = {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "5"}}
    assert counted(spec).cpu_milli == 3_000
    assert counted(spec, **status).cpu_milli == 6_000
    smaller = {**spec, "resources": {"requests": {"cpu": "9"}}}
    assert counted(smaller, **status, conditions=INFEASIBLE).cpu_milli == 6_000


@pytest.mark.parametrize(
    ("whole", "cpu_milli", "others"),
    [
        ({"requests": {"cpu": "1"}}, 1_000, {"rdma/hca": 1, "hugepages-2Mi": 1 << 21}),
        ({"limits": {"cpu": "8"}}, 2_000, {"rdma/hca": 1, "hugepages-2Mi": 1 << 21}),
        ({"limits": {"hugepages-2Mi": "6Mi"}}, 2_000, {"rdma/hca": 1, "hugepages-2Mi": 6 << 20}),
        ({"requests": {"rdma/hca": "7"}}, 2_000, {"rdma/hca": 1, "hugepages-2Mi": 1 << 21}),
        ({"limits": {"memory": "1Gi"}}, 2_000, {"rdma/hca": 1, "hugepages-2Mi": 1 << 21}),
    ],
)
def test_an_amount_of_the_whole_pod_replaces_the_sum_where_kubernetes_has_it(
    whole: dict[str, Any], cpu_milli: int, others: dict[str, int]
) -> None:
    spec = {"containers": [box("a", {"cpu": "2", "rdma/hca": "1", "hugepages-2Mi": "2Mi"})], "resources": whole}
    found = counted(spec)
    assert found.cpu_milli == cpu_milli
    assert found.memory_mib == (1024 if "memory" in whole.get("limits", {}) else 0)
    assert found.constraints is not None
    assert dict(found.constraints.resources) == others
