"""Jobs whose tasks have chips or not: ranks, sizes and requests, in whatever order the pods come."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.support.gang_world import GangWorld, a_group, facts_of
from tests.unit.services.inventory.gangs.test_pods_without_chips import JOB, KEY, VCJOB, task_pod, volcano


class Job(NamedTuple):
    """A Volcano Job: its tasks (name, pods, chips), its minimum, and the order in which its pods come."""

    tasks: list[tuple[str, int, int]]
    least: int
    order: list[tuple[str, int, int]]
    first: int
    """Pods that come before the others, at least the minimum."""


@st.composite
def volcano_jobs(draw: st.DrawFn) -> Job:
    names = draw(st.lists(st.sampled_from(("a", "b", "master", "ps", "z")), min_size=1, max_size=4, unique=True))
    tasks = [(name, draw(st.integers(1, 3)), draw(st.sampled_from((0, 8)))) for name in names]
    pods = [(name, index, chips) for name, count, chips in tasks for index in range(count)]
    least = draw(st.integers(1, len(pods)))
    return Job(tasks, least, draw(st.permutations(pods)), draw(st.integers(least, len(pods))))


@given(job=volcano_jobs())
def test_ranks_of_pods_with_chips_begin_at_0_without_a_gap_whatever_pods_lack_chips(job: Job) -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=job.least, owner=VCJOB))
    world.pods(*(task_pod(name, index, chips=chips) for name, index, chips in job.order[: job.first]))
    world.settle()
    world.gangs.set_owner(KEY, facts_of(KEY, volcano(*job.tasks)))
    world.settle()
    assert len(world.members[JOB].pods) == job.least
    world.status(JOB, "placed")
    world.pods(*(task_pod(name, index, chips=chips) for name, index, chips in job.order[job.first :]))
    world.settle()
    ranks = [pair for name in world.requests for pair in world.ranks(name).items()]
    assert sorted(pod for pod, _ in ranks) == sorted(f"llm-{name}-{index}" for name, index, _ in job.order)
    chips = {f"llm-{name}-{index}": count for name, index, count in job.order}
    assert all(rank == "" for pod, rank in ranks if not chips[pod])
    with_chips = [f"llm-{name}-{index}" for name, count, has in job.tasks if has for index in range(count)]
    assert {pod: rank for pod, rank in ranks if chips[pod]} == {pod: str(at) for at, pod in enumerate(with_chips)}
    seen = sum(1 for name, index, count in job.order[: job.first] if count)
    sizes = {request.annotations["berth/gang-pods"] for request in world.requests.values()}
    assert sizes == {str(len(with_chips))} or (not seen and sizes <= {"0", str(len(with_chips))})
    first = world.requests[JOB]
    taken = sum(task.replicas for task in first.tasks if task.chips)
    assert taken == min(seen, job.least), "a pod without chips keeps none with chips out"
    assert all(("berth/beside" in request.annotations) <= (not request.resource) for request in world.requests.values())
