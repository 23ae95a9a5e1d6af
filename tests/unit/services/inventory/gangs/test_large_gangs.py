"""Gangs that are larger than any may be, and what of objects is copied into a request."""

from berth.schemas.intake import ANNOTATIONS, SHAPES, TOLERATIONS
from berth.schemas.refusal import Refusal
from berth.services.inventory.effects import PublishRequest
from berth.services.inventory.gang_collection import Gangs
from berth.services.inventory.gangs.settings import GangSettings
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, in_namespace, requested, settled


def with_cpu(count: int, start: int = 0) -> list[dict[str, object]]:
    return [
        {"containers": [{"resources": {"requests": {"cpu": f"{number + 1}m"}, "limits": {"huawei.com/Ascend910": 1}}}]}
        for number in range(start, start + count)
    ]


def test_many_kinds_of_pods_in_one_group_wait_with_the_bound_and_stop_no_other_group() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2_000))
    world.gangs.set_group(a_group("other", least=1))
    world.pods(*(a_pod(f"p-{number}", group="pg", spec=spec) for number, spec in enumerate(with_cpu(2_000))))
    world.pods(a_pod("q", group="other"))
    world.settle()
    assert [request.tasks[0].replicas for request in world.requests.values()] == [1]
    assert BASE not in world.requests
    assert world.hold(BASE) == (
        "no request is made for so large a gang: tasks is 2000 shapes, expected at most 1024 kinds of pods of a job, "
        "which differ in what they ask for"
    )
    assert len(world.members[BASE].pods) == 2_000


def test_a_group_that_was_too_large_is_requested_when_it_is_not_any_more() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=SHAPES.most + 1))
    pods = [a_pod(f"p-{number}", group="pg", spec=spec) for number, spec in enumerate(with_cpu(SHAPES.most + 1))]
    world.pods(*pods)
    world.settle()
    assert world.hold(BASE).startswith("no request is made")
    world.gangs.set_group(a_group("pg", least=SHAPES.most, version="2"))
    world.settle()
    assert len(world.requests[BASE].tasks) == SHAPES.most
    assert world.hold(BASE) == ""


def test_only_what_is_read_is_copied_from_a_group_with_many_annotations_and_labels() -> None:
    world = GangWorld()
    junk = {f"example.com/key-{number}": "x" for number in range(16_000)}
    near = {f"huawei.com/sched{number:05}": "x" for number in range(16_000)}
    group = a_group(
        "pg", least=1, annotations=junk | near | {"sp-block": "16", "sp-blok": "8"}, labels=junk | {"app": "mindie"}
    )
    world.gangs.set_group(group)
    world.pods(a_pod("p", group="pg", labels={"tier": "gold"}))
    world.settle()
    request = world.requests[BASE]
    assert request.annotations["sp-block"] == "16"
    assert len(request.annotations) <= ANNOTATIONS.most
    assert set(request.annotations).isdisjoint(junk)
    assert request.labels == {"app": "mindie", "tier": "gold"}


def test_a_misspelled_key_of_a_group_is_copied_so_that_it_is_warned_of() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=1, annotations={"sp-blok": "16", "note": "x"}))
    world.pods(a_pod("p", group="pg"))
    world.settle()
    assert world.requests[BASE].annotations == {"sp-blok": "16", "berth/gang-pods": "1"}


def test_a_pod_with_too_many_tolerations_waits_alone_with_the_bound() -> None:
    world = GangWorld()
    world.pods(a_pod("wide", spec={"tolerations": [{"operator": "Exists"}] * (TOLERATIONS.most + 1)}), a_pod("q"))
    world.settle()
    assert [one for one in world.requests if "wide" in one] == []
    (hold,) = [seen.hold for name, seen in world.members.items() if "wide" in name]
    assert hold == "pod wide has spec.tolerations of 65: expected at most 64 tolerations of a pod"
    assert [one for one in world.requests if "q" in one] != []


def test_a_request_for_which_too_many_wait_is_made_again_later() -> None:
    world = requested()
    crowd = Refusal("too-many", field="namespace", value="one with 9 waiting jobs", expected="at most 9")
    world.gangs.note_job(world.job(BASE, "rejected", refusal=crowd))
    world.settle()
    assert world.hold(BASE) == (
        "its request failed: namespace is one with 9 waiting jobs, expected at most 9; it is retried later"
    )
    first = world.requests.pop(BASE)
    world.settle(after_s=29)
    assert world.requests == {}
    world.settle(after_s=2)
    assert world.requests[BASE].uid != first.uid


def test_gangs_of_namespaces_take_turns_however_many_of_one_have_changed() -> None:
    gangs = Gangs(GangSettings())
    for number in range(5_000):
        gangs.set_pod(in_namespace("flood", a_pod(f"p-{number}")))
    gangs.set_pod(in_namespace("bystander", a_pod("q")))
    requests = [effect.request for effect in gangs.settle(1) if isinstance(effect, PublishRequest)]
    assert "bystander" in {request.namespace for request in requests}
    assert len(requests) == 128


def test_all_gangs_that_have_changed_are_looked_at_in_the_end() -> None:
    gangs = Gangs(GangSettings())
    for number in range(1_000):
        gangs.set_pod(in_namespace(f"ns-{number % 300}", a_pod(f"p-{number}")))
    effects = settled(gangs, 1)
    assert sum(isinstance(effect, PublishRequest) for effect in effects) == 1_000


def test_a_gang_waits_until_the_past_ones_of_its_namespace_have_given_up_their_names() -> None:
    gangs = Gangs(GangSettings())
    count = 1_000
    for number in range(count):
        gangs.set_group(a_group(f"g{number:04}", least=1, uid="before"))
        gangs.set_pod(a_pod(f"p-{number:04}", group=f"g{number:04}"))
    before = [effect.request.name for effect in settled(gangs, 1) if isinstance(effect, PublishRequest)]
    for number in range(count):
        gangs.set_group(a_group(f"g{number:04}", least=1, uid="after", version="9"))
    after = [effect.request.name for effect in settled(gangs, 2) if isinstance(effect, PublishRequest)]
    assert sorted(after) == sorted(before)
