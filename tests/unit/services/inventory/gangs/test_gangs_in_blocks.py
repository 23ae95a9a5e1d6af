"""Gangs with SuperPoD affinity: their keys reach the request wherever they are, and all pods are requested at once."""

from typing import Any, Final

import msgspec
import pytest

from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pods import near_of
from berth.formats.manifests.reader import ManifestError, parse_jobs
from berth.schemas.intake import JobRequest
from tests.support.gang_world import GangWorld, a_group, a_pod, facts_of
from tests.support.manifest_text import berth

ANNOTATIONS: Final = {
    "sp-block": "16",
    "ra-block": "8",
    "sp-fit": "idlest",
    "huawei.com/affinity-config": "level1=2",
    "huawei.com/schedule_policy": "chip8-node8-sp",
    "huawei.com/schedule_ubmemory": "true",
    "huawei.com/skip-ascend-plugin": "enabled",
}
LABELS: Final = {"super-pod-affinity": "soft", "inferserviceid": "llama", "app": "mindie", "jobID": "j7"}
NEAR: Final = {"app": "mindie-server", "jobID": "j7"}
VCJOB: Final = ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")


def affinity(*terms: dict[str, str]) -> dict[str, Any]:
    """Spec with preferred neighbours."""
    found = [
        {"weight": 100 - at, "podAffinityTerm": {"labelSelector": {"matchLabels": term}, "topologyKey": "zone"}}
        for at, term in enumerate(terms)
    ]
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": found}}}


def asked(world: GangWorld, count: int) -> JobRequest:
    """The only request of a world, for so many pods."""
    (request,) = world.requests.values()
    assert request.min_available == sum(task.replicas for task in request.tasks) == count
    return request


@pytest.mark.parametrize("place", ["group", "job", "pods"])
def test_keys_reach_the_request_wherever_they_stand(place: str) -> None:
    def given(here: str, keys: dict[str, str]) -> dict[str, str]:
        return keys if here == place else {}

    world = GangWorld()
    labels, annotations = given("group", LABELS), given("group", ANNOTATIONS)
    world.gangs.set_group(a_group("pg", least=2, owner=VCJOB, labels=labels, annotations=annotations))
    for index in range(2):
        more = {"volcano.sh/task-spec": "w", "volcano.sh/task-index": str(index)}
        found = given("pods", ANNOTATIONS) if index == 0 else {}
        pod = a_pod(
            f"p-{index}", group="pg", labels=given("pods", LABELS), annotations=found | more, spec=affinity(NEAR)
        )
        world.pods(pod)
    world.settle()
    tasks = {"tasks": [{"name": "w", "replicas": 2}]}
    owner = facts_of(world.looks[0], tasks, labels=given("job", LABELS), annotations=given("job", ANNOTATIONS))
    world.gangs.set_owner(world.looks[0], owner)
    world.settle()
    request = asked(world, 2)
    assert request.annotations.items() >= ANNOTATIONS.items()
    assert request.labels.items() >= LABELS.items()
    assert request.near == NEAR


def test_a_pod_alone_has_its_own() -> None:
    world = GangWorld()
    world.pods(a_pod("one", labels=LABELS, annotations=ANNOTATIONS, spec=affinity(NEAR)))
    world.settle()
    request = asked(world, 1)
    assert request.annotations.items() >= ANNOTATIONS.items()
    assert (request.labels, request.near) == (LABELS, NEAR)


def test_the_first_term_of_the_first_pod_that_has_some_counts() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3, owner=VCJOB))
    for index, (task, spec) in enumerate((("a", {}), ("b", affinity(NEAR, {"x": "y"})), ("c", affinity({"z": "0"})))):
        more = {"volcano.sh/task-spec": task, "volcano.sh/task-index": "0"}
        world.pods(a_pod(f"p-{index}", group="pg", annotations=more, spec=spec))
    world.settle()
    world.gangs.set_owner(world.looks[0], None)
    world.settle()
    assert asked(world, 3).near == NEAR


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"podAffinity": None},
        {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {"matchLabels": NEAR}}]}},
        {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}},
        {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {}}]}},
        {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"labelSelector": {}}}]
            }
        },
    ],
)
def test_a_pod_without_preferred_neighbours_has_none(found: dict[str, Any]) -> None:
    assert near_of(msgspec.convert({"affinity": found}, PodSpec)) == {}


@pytest.mark.parametrize(
    ("annotations", "chips", "count"),
    [
        ({"sp-block": "16"}, 8, 4),
        ({"huawei.com/affinity-config": "level1=2"}, 8, 4),
        ({"sp-fit": "idlest"}, 8, 2),
        ({"sp-block": "16"}, 0, 2),
    ],
)
def test_all_pods_of_a_job_in_blocks_are_asked_for_at_once(annotations: dict[str, str], chips: int, count: int) -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2, owner=VCJOB, annotations=annotations))
    for index in range(4):
        more = {"volcano.sh/task-spec": "w", "volcano.sh/task-index": str(index)}
        world.pods(a_pod(f"p-{index}", group="pg", chips=chips, annotations=more))
        if index == 2:
            world.settle()
            world.gangs.set_owner(world.looks[0], facts_of(world.looks[0], {"tasks": [{"name": "w", "replicas": 4}]}))
            world.settle()
            assert bool(world.requests) == (count == 2)
    if count == 4:
        assert world.hold("vcjob.llm") == "3 of at least 4 pods exist"
    world.settle()
    asked(world, count)


def test_pods_that_are_made_one_after_the_other_are_not_waited_for() -> None:
    world = GangWorld()
    owner = ("apps/v1", "StatefulSet", "s", "s-1")
    world.pods(a_pod("s-0", owner=owner, annotations={"sp-block": "8"}))
    world.settle()
    spec = {"replicas": 4, "podManagementPolicy": "OrderedReady"}
    world.gangs.set_owner(world.looks[0], facts_of(world.looks[0], spec))
    world.settle()
    asked(world, 1)


def test_a_job_file_says_beside_whom_it_prefers_to_be() -> None:
    (job,) = parse_jobs(berth("{replicas: 2, near: {app: server}}"))
    assert job.near == {"app": "server"}
    with pytest.raises(ManifestError) as error:
        parse_jobs(berth("{replicas: 2, near: {app: 7}}"))
    assert (error.value.path, error.value.expected) == ("spec.near.app", "text; put it in quotes")


def test_neighbours_in_a_manifest_that_cannot_be_are_told_with_their_place() -> None:
    text = """
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  template:
    spec:
      restartPolicy: Never
      affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: SAID}}}]}}
      containers: [{name: c, resources: {limits: {huawei.com/Ascend910: 1}}}]
"""
    (job,) = parse_jobs(text.replace("SAID", "{app: server}"))
    assert job.near == {"app": "server"}
    with pytest.raises(ManifestError) as error:
        parse_jobs(text.replace("SAID", "[app]"))
    assert error.value.path.endswith("[0].podAffinityTerm.labelSelector.matchLabels")
    assert error.value.expected == "a mapping"
