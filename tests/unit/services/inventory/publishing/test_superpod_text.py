"""What bound pods say of blocks and of their inference service, as facts."""

from berth.schemas.columns import pack
from berth.schemas.facts import PodsSeen
from tests.unit.services.inventory.pods.test_collection import World, a_pod, accepted

LABEL = {"inferserviceid": "llama"}


def block(number: object) -> dict[str, str]:
    return {"super-pod-id": "3", "super-pod-rank": str(number)}


def words(fact: PodsSeen) -> tuple[str, bytes]:
    return fact.service, fact.blocks


def test_pods_tell_of_their_blocks_rank_by_rank_also_when_some_are_gone_or_the_teller_is_new() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 2))
    first = a_pod("a", chips="Ascend910-0,Ascend910-1", job=("j", "u", 1, 0), annotations=block(0), labels=LABEL)
    second = a_pod("b", chips="Ascend910-2,Ascend910-3", job=("j", "u", 1, 1), annotations=block(300), labels=LABEL)
    world.put(first, second)
    (fact,) = world.facts()
    assert words(fact) == ("llama", pack([1, 301], 2))
    world.pods.remove("uid-a")
    (fact,) = world.facts()
    assert words(fact) == ("llama", pack([1, 301], 2))
    again = World([fact])
    again.pods.note_job(accepted("j", "u", 2))
    again.put(second)
    assert again.facts() == []


def test_pods_without_word_of_blocks_say_nothing_of_them() -> None:
    world = World()
    world.put(a_pod("a", chips="Ascend910-0,Ascend910-1", annotations=block("x")))
    (fact,) = world.facts()
    assert words(fact) == ("", b"")


def test_foreign_pods_tell_of_their_blocks_and_service_again_when_that_changes() -> None:
    world = World()
    chips = "Ascend910-0,Ascend910-1"
    for annotations, labels, told in (
        ({}, LABEL, ("llama", b"")),
        (block(4), LABEL, ("llama", pack([5], 2))),
        (block(0), {}, ("", pack([1], 2))),
    ):
        world.put(a_pod("a", chips=chips, annotations=annotations, labels=labels))
        (fact,) = world.facts()
        assert (fact.foreign, words(fact)) == (True, told)
        world.put(a_pod("a", chips=chips, annotations=annotations, labels=labels))
        assert world.facts() == []


def test_pods_of_a_job_that_the_ledger_has_lost_keep_their_blocks_when_they_are_adopted() -> None:
    world = World()
    chips = "Ascend910-0,Ascend910-1"
    world.put(a_pod("a", chips=chips, job=("j", "u", 1, 3), annotations=block(2), labels=LABEL))
    assert world.facts() == []
    world.now_ms = 1000
    (fact,) = world.facts()
    assert (fact.foreign, words(fact)) == (True, ("llama", pack([3], 2)))
