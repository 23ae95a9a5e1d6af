"""When a gang is processed: at once when it is known to be complete, after the settle time otherwise."""

import msgspec
import pytest

from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.formats.kubernetes.workloads.registry import kinds
from berth.services.inventory.effects import PublishMembers, PublishRequest
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, facts_of, members

SETTLE_MS = 200
JOB = ("batch/v1", "Job", "llm", "job-1")
UNKNOWN = ("kubeflow.org/v1", "PyTorchJob", "llm", "pt-1")
OWNER = OwnerKey("Job", "ns", "llm")


def a_world() -> GangWorld:
    return GangWorld(settle_ms=SETTLE_MS)


def said(world: GangWorld, *, after_s: float = 0) -> int:
    """Number of facts and requests that are published."""
    effects = world.settle(after_s=after_s)
    return sum(1 for effect in effects if isinstance(effect, PublishMembers | PublishRequest))


def of_job(world: GangWorld, pods: int, start: int = 0) -> None:
    """Pods of a Job."""
    for index in range(start, start + pods):
        labels = {"batch.kubernetes.io/job-completion-index": str(index)}
        world.pods(a_pod(f"llm-{index}", labels=labels, owner=JOB))


def a_spec(pods: int, *, indexed: bool = True) -> dict[str, object]:
    mode = "Indexed" if indexed else "NonIndexed"
    return {"parallelism": pods, "completions": pods, "completionMode": mode}


def test_a_pod_alone_is_requested_at_once() -> None:
    world = a_world()
    world.pods(a_pod("one"))
    world.settle()
    assert list(world.requests) == ["pod.one"]


def test_a_podgroup_is_requested_with_the_last_of_its_pods() -> None:
    world = a_world()
    world.gangs.set_group(a_group("pg", least=3))
    world.pods(*members(2))
    assert said(world) == 0
    world.pods(*members(1, 2))
    world.settle()
    assert world.standing(BASE) == {0: "p-0", 1: "p-1", 2: "p-2"}
    assert list(world.requests) == [BASE]


def test_a_gang_that_lacks_pods_waits_until_no_more_come_and_is_then_held() -> None:
    world = a_world()
    world.gangs.set_group(a_group("pg", least=9))
    for index in range(4):
        world.pods(*members(1, index))
        assert said(world) == 0
        assert said(world, after_s=0.199) == 0
    world.pods(*members(1, 4))
    world.settle(after_s=0.004)
    assert world.hold(BASE) == "5 of at least 9 pods exist", "not later than after four settle times"
    world.pods(*members(1, 5))
    world.settle()
    assert world.hold(BASE) == "5 of at least 9 pods exist"
    assert world.gangs.next_due_ms() == world.now_ms + SETTLE_MS
    world.settle(after_s=0.2)
    assert world.hold(BASE) == "6 of at least 9 pods exist"
    assert world.requests == {}


def test_the_owner_is_read_at_once_and_the_last_of_its_pods_is_not_waited_for() -> None:
    world = a_world()
    of_job(world, 1)
    world.settle()
    assert world.looks == [OWNER]
    world.gangs.set_owner(OWNER, facts_of(OWNER, a_spec(3)))
    assert said(world) == 0
    of_job(world, 1, start=2)
    assert said(world) == 0
    of_job(world, 1, start=1)
    world.settle()
    assert world.standing("job.llm") == {0: "llm-0", 1: "llm-1", 2: "llm-2"}
    assert [request.name for request in world.published] == ["job.llm"]


def test_pods_that_need_not_start_together_wait_for_each_other_as_long_as_more_may_come() -> None:
    world = a_world()
    of_job(world, 1, start=1)
    world.settle()
    world.gangs.set_owner(OWNER, facts_of(OWNER, a_spec(3, indexed=False)))
    assert said(world) == 0
    of_job(world, 1)
    assert said(world, after_s=0.1) == 0
    world.settle(after_s=0.1)
    assert world.standing("job.llm") == {0: "llm-0"}, "the first in order, not the first that came"
    assert {request.annotations["berth/gang-pods"] for request in world.published} == {"3"}


@pytest.mark.parametrize("where", ["pods", "group"])
def test_pods_of_an_unknown_controller_settle_even_when_the_minimum_is_there(where: str) -> None:
    world = a_world()
    world.gangs.set_group(a_group("pg", least=2, owner=UNKNOWN if where == "group" else None))
    world.pods(*members(2, owner=UNKNOWN if where == "pods" else None))
    assert said(world) == 0
    world.pods(*members(1, 2, owner=UNKNOWN if where == "pods" else None))
    world.settle(after_s=0.2)
    assert [one.annotations["berth/gang-pods"] for one in world.published if one.min_available == 2] == ["3"]


def test_deployment_too_large_pods_that_go_one_by_one_are_not_requested_when_the_owner_was_made_smaller() -> None:
    world = a_world()
    of_job(world, 1)
    world.settle()
    world.gangs.set_owner(OWNER, facts_of(OWNER, a_spec(5)))
    of_job(world, 3, start=1)
    world.settle()
    world.settle(after_s=0.2)
    assert world.hold("job.llm") == "4 of at least 5 pods exist"
    world.gangs.set_owner(OWNER, facts_of(OWNER, a_spec(2)))
    for index in (3, 2):
        assert said(world) == said(world, after_s=0.15) == 0
        world.gangs.drop_pod(f"uid-llm-{index}")
    world.settle()
    assert world.standing("job.llm") == {0: "llm-0", 1: "llm-1"}


def test_more_pods_than_known_settle() -> None:
    world = a_world()
    of_job(world, 1)
    world.settle()
    world.gangs.set_owner(OWNER, facts_of(OWNER, a_spec(1)))
    of_job(world, 2, start=1)
    assert said(world) == 0
    world.settle(after_s=0.2)
    assert (world.requests, world.looks) == ({}, [OWNER, OWNER]), "it may be larger by now"
    world.gangs.set_owner(OWNER, facts_of(OWNER, a_spec(1)))
    assert said(world) == 0
    world.settle(after_s=2)
    assert world.requests


def test_pods_without_their_podgroup_settle_until_it_comes() -> None:
    world = a_world()
    world.pods(*members(2))
    assert said(world) == 0
    world.gangs.set_group(a_group("pg", least=2))
    world.settle()
    assert list(world.requests) == [BASE]


def test_a_podgroup_without_a_minimum_settles() -> None:
    world = a_world()
    world.gangs.set_group(a_group("pg", least=None))
    world.pods(*members(1))
    assert said(world) == 0
    world.settle(after_s=0.2)
    assert list(world.requests) == [BASE]


@pytest.mark.parametrize(("count", "apart_ms"), [(6_000, 1_000), (1_000, 200), (100, 20), (4, 0)])
def test_a_complete_gang_is_processed_at_once_but_not_again_before_a_time_that_grows_with_it(
    count: int, apart_ms: int
) -> None:
    world = a_world()
    world.gangs.set_group(a_group("pg", least=count))
    world.pods(*members(count))
    world.settle()
    for _ in range(2):  # the second change waits as long as the first
        world.settle(after_s=apart_ms / 1000)
        world.pods(*members(1, node="n1"))
        world.settle()
        processed_ms = world.now_ms
        world.pods(*members(1, 1, node="n1"))
        world.settle(after_s=0.001)
        assert world.gangs.next_due_ms() == (processed_ms + apart_ms if apart_ms else None)


def test_what_a_timer_asks_for_does_not_settle_first() -> None:
    world = a_world()
    world.gangs.set_group(a_group("pg", least=2))
    world.pods(*members(2))
    world.settle()
    world.verdict(BASE)
    world.status(BASE, "waiting")
    world.settle()
    world.gangs.drop_pod("uid-p-1")
    world.settle()
    world.settle(after_s=0.2)
    world.settle(after_s=world.settings.vanished_s)
    assert [name for name, _, _ in world.withdrawn] == [BASE]


def test_a_clock_that_is_set_back_delays_nothing() -> None:
    world = a_world()
    world.gangs.set_group(a_group("pg", least=9))
    world.pods(*members(2))
    assert said(world) == 0
    world.pods(*members(1, 2))
    world.settle(after_s=-600)
    world.settle(after_s=0.2)
    assert world.hold(BASE) == "3 of at least 9 pods exist"


def test_a_clock_that_is_set_back_delays_no_gang() -> None:
    """The time at which a gang is to be processed was computed before that."""
    world = GangWorld(settle_ms=200)
    world.pods(a_pod("web-0", owner=("example.com/v1", "Thing", "web", "thing-1")))
    world.gangs.settle(world.now_ms)
    world.now_ms -= 3_600_000
    for _ in range(5):
        world.now_ms += 200
        world.settle()
    assert list(world.requests) == ["thing.web"]


def made_smaller() -> GangWorld:
    """Four pods of a job of five, which is one of two now; no pod of it was seen to go."""
    world = a_world()
    of_job(world, 1)
    world.settle()
    world.gangs.set_owner(OWNER, facts_of(OWNER, a_spec(5)))
    of_job(world, 3, start=1)
    world.settle()
    world.settle(after_s=0.2)
    assert world.hold("job.llm") == "4 of at least 5 pods exist"
    world.looks.clear()
    metadata = {"name": "llm", "namespace": "ns"}
    assert world.gangs.change_owner(
        "Job", msgspec.convert({"metadata": metadata, "spec": a_spec(2)}, kinds().named["Job"].struct)
    )
    world.settle()
    world.settle(after_s=2)
    assert world.looks == [OWNER]
    world.gangs.set_owner(OWNER, facts_of(OWNER, a_spec(2)))
    assert said(world) == 0
    return world


def test_deployment_too_large_pods_whose_deletion_is_seen_late_are_not_requested() -> None:
    world = made_smaller()
    assert said(world, after_s=1) == 0
    for index in (0, 2):
        world.gangs.drop_pod(f"uid-llm-{index}")
    world.settle()
    assert world.standing("job.llm") == {0: "llm-1", 1: "llm-3"}


def test_pods_that_nobody_deletes_keep_the_others_waiting_for_two_seconds_alone() -> None:
    world = made_smaller()
    assert said(world, after_s=1.9) == 0
    world.settle(after_s=0.1)
    assert world.requests
