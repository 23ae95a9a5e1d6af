"""Place in the queue of ranks that a gang has lost, and of pods that are requested anew."""

import pytest

from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, members, requested

AGE_SEQ = 7
"""INTAKE sequence at which the first request of the gang was accepted."""


def running(count: int, least: int) -> GangWorld:
    """A gang of ``count`` pods, all of which run and ``least`` of which have to start together."""
    world = requested(count)
    world.verdict(BASE, accepted_seq=AGE_SEQ)
    world.status(BASE, "placed")
    world.pods(*members(count, node="n1", phase="Running"))
    world.outcome(BASE)
    world.status(BASE, "running")
    world.gangs.set_group(a_group("pg", least=least, version="2"))
    world.settle()
    return world


def lose(world: GangWorld, *indexes: int) -> None:
    """Pods are deleted, and their controller makes others."""
    for index in indexes:
        world.gangs.drop_pod(f"uid-p-{index}")
    world.settle(after_s=1)
    world.pods(*(a_pod(f"p-{index}", uid=f"new-{index}", group="pg") for index in indexes))
    world.settle(after_s=1)


def singles(world: GangWorld) -> list[tuple[int, bool]]:
    """Place in the queue of each request but the first, and whether it comes before others."""
    return [(one.since_seq, one.is_fragile) for one in world.published if one.name != BASE]


def test_a_rank_that_a_gang_below_its_minimum_has_lost_comes_first_and_has_the_age_of_the_gang() -> None:
    world = running(4, 4)
    lose(world, 1, 2)
    assert singles(world) == [(AGE_SEQ, True), (AGE_SEQ, True)]


def test_a_rank_that_a_gang_can_do_without_has_the_age_of_the_gang_alone() -> None:
    world = running(4, 2)
    lose(world, 1)
    assert singles(world) == [(AGE_SEQ, False)]


def test_what_a_gang_grows_beyond_its_largest_size_has_an_age_of_its_own() -> None:
    world = running(4, 4)
    world.pods(*members(2, start=4))
    world.settle(after_s=1)
    assert singles(world) == [(0, False), (0, False)]


def test_a_pod_that_has_succeeded_is_not_lost() -> None:
    world = running(4, 2)
    world.pods(a_pod("p-0", group="pg", node="n1", phase="Succeeded"))
    world.pods(a_pod("p-9", group="pg"))
    world.settle(after_s=1)
    assert singles(world) == [(0, False)]


def test_a_rank_that_waits_comes_first_once_its_gang_falls_below_its_minimum() -> None:
    world = running(4, 3)
    lose(world, 1)
    ((name, request),) = [(one.name, one) for one in world.published if one.name != BASE]
    world.verdict(name, accepted_seq=20)
    world.status(name, "waiting")
    world.settle(after_s=1)
    assert (request.since_seq, request.is_fragile) == (AGE_SEQ, False)
    lose(world, 2)
    assert (name, request.uid, "its gang has 2 of at least 3 pods now") in world.withdrawn
    assert singles(world)[1:] == [(AGE_SEQ, True), (AGE_SEQ, True)]


def test_a_growing_gang_that_runs_below_a_raised_minimum_is_not_requested_anew_without_end() -> None:
    """Its pods have an age because they waited before, not because the gang had them."""
    world = running(1, 1)
    world.pods(*members(1, start=1))
    world.settle(after_s=1)
    (name,) = (one.name for one in world.published if one.name != BASE)
    world.verdict(name, accepted_seq=20)
    world.status(name, "waiting")
    for version, (least, phase) in enumerate([(1, "Pending"), (1, "Inqueue"), (2, "Inqueue")], 2):
        world.gangs.set_group(a_group("pg", least=least, phase=phase, version=str(version)))
        world.settle(after_s=1)
    assert singles(world) == [(0, False), (20, False)], "it was admitted again, and has another minimum"


def test_a_restart_keeps_the_place_of_a_request_that_waits() -> None:
    world = running(4, 4)
    lose(world, 1)
    ((name, request),) = [(one.name, one) for one in world.published if one.name != BASE]
    other = GangWorld()
    other.requests = dict(world.requests)
    for job in (BASE, name):
        other.gangs.restore(world.members[job], world.job(job))
    other.gangs.set_group(a_group("pg", least=4, version="2"))
    other.pods(*members(4, node="n1", phase="Running")[:1], *members(4, node="n1", phase="Running")[2:])
    other.pods(a_pod("p-1", uid="new-1", group="pg"))
    other.settle(after_s=1)
    assert other.withdrawn == []
    assert other.published == [], "the request stands as it was made"
    assert request.is_fragile


def test_pods_that_are_requested_anew_while_they_wait_keep_their_age() -> None:
    world = requested(4)
    world.verdict(BASE, accepted_seq=AGE_SEQ)
    uid = world.requests[BASE].uid
    world.gangs.set_group(a_group("pg", least=3, version="2"))
    world.settle(after_s=1)
    assert world.withdrawn == [(BASE, uid, "its minimum is now 3, not 4")]
    assert world.requests[BASE].since_seq == AGE_SEQ


def test_pods_take_their_age_along_to_another_gang() -> None:
    world = requested(2)
    world.verdict(BASE, accepted_seq=AGE_SEQ)
    world.gangs.set_group(a_group("other", least=2))
    world.pods(*(a_pod(f"p-{index}", group="other") for index in range(2)))
    world.settle(after_s=1)
    assert world.requests["podgroup.other"].since_seq == AGE_SEQ


def fail(world: GangWorld, uid: str, *, after_s: float = 1) -> None:
    """The pod of rank 1 fails, and its controller makes another."""
    name = world.published[-1].name
    for phase in ("Running", "Failed"):
        world.pods(a_pod("p-1", uid=uid, group="pg", node="n1", phase=phase, env={"VC_TASK_INDEX": "1"}))
        world.outcome(name)
        world.settle(after_s=1)
    world.status(name, "failed")
    world.gangs.drop_pod(uid)
    world.settle(after_s=after_s)


def again(world: GangWorld, uid: str) -> tuple[int, bool]:
    """Place in the queue of the request for the pod that is made anew for rank 1."""
    world.pods(a_pod("p-1", uid=uid, group="pg", env={"VC_TASK_INDEX": "1"}))
    world.settle(after_s=1)
    request = world.published[-1]
    assert world.standing(request.name) == {0: "p-1"}
    assert world.members[request.name].pod_uids == [uid]
    world.verdict(request.name, accepted_seq=30)
    world.status(request.name, "placed")
    world.settle()
    return request.since_seq, request.is_fragile


def test_a_rank_whose_pods_fail_again_and_again_comes_first_no_longer() -> None:
    """It would take the room that others wait for each time, and lose it again."""
    world = running(4, 4)
    world.gangs.drop_pod("uid-p-1")
    assert again(world, "first") == (AGE_SEQ, True)
    fail(world, "first")
    assert again(world, "second") == (AGE_SEQ, True), "once may happen"
    fail(world, "second")
    assert again(world, "third") == (0, False)
    fail(world, "third", after_s=601)
    assert again(world, "fourth") == (AGE_SEQ, True), "it has run for long since"
    lose(world, 2)
    assert singles(world)[-1] == (AGE_SEQ, True), "the other ranks have nothing to do with it"


def pass_time(world: GangWorld) -> None:
    """Wait until no gang settles any more."""
    for _ in range(3):
        world.settle(after_s=0.3)


@pytest.mark.parametrize("is_away", [True, False])
def test_a_job_whose_controller_restarts_all_of_its_pods_keeps_its_age(*, is_away: bool) -> None:
    """Volcano's RestartJob replaces the PodGroup before or after the last pod is gone, and then makes all pods."""
    owner = ("example.com/v1", "Thing", "train", "train-1")
    world = GangWorld(settle_ms=200)
    world.gangs.set_group(a_group("pg", least=2, owner=owner))
    world.pods(*members(2))
    pass_time(world)
    (name,) = world.requests
    world.verdict(name, accepted_seq=AGE_SEQ)
    world.status(name, "placed")
    world.pods(*members(2, node="n1", phase="Running"))
    world.outcome(name)
    world.status(name, "running")
    pass_time(world)
    for index in range(2):
        world.gangs.drop_pod(f"uid-p-{index}")
    pass_time(world)
    world.status(name, "failed")
    pass_time(world)
    if is_away:
        world.gangs.drop_group("ns", "pg")
        world.settle(after_s=0.01)
    world.gangs.set_group(a_group("pg", uid="later", least=2, owner=owner))
    pass_time(world)
    world.pods(*(a_pod(f"p-{index}", uid=f"new-{index}", group="pg") for index in range(2)))
    pass_time(world)
    assert [(one.since_seq, one.min_available) for one in world.published] == [(0, 2), (AGE_SEQ, 2)]


def test_nothing_is_kept_of_a_gang_whose_podgroup_is_gone() -> None:
    world = running(2, 2)
    for index in range(2):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.status(BASE, "failed")
    world.settle(after_s=1)
    world.gangs.drop_group("ns", "pg")
    world.settle(after_s=1)
    world.gangs.set_group(a_group("pg", least=2, version="7"))
    world.pods(*(a_pod(f"p-{index}", uid=f"new-{index}", group="pg") for index in range(2)))
    world.settle(after_s=1)
    assert [one.since_seq for one in world.published] == [0, 0]
