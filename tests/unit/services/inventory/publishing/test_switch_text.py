"""What bound pods say of leaf switches, as facts."""

from tests.unit.services.inventory.pods.test_collection import World, a_pod, accepted


def leaf(shared: int, healthy: int = 0) -> dict[str, str]:
    return {"isSharedTor": str(shared), "isHealthy": str(healthy)}


def test_pods_tell_of_their_leaves_rank_by_rank_also_when_some_are_gone_or_the_teller_is_new() -> None:
    label = {"tor-affinity": "large-model-schema"}
    world = World()
    world.pods.note_job(accepted("j", "u", 2))
    first = a_pod("a", chips="Ascend910-0,Ascend910-1", job=("j", "u", 1, 0), annotations=leaf(2), labels=label)
    second = a_pod("b", chips="Ascend910-2,Ascend910-3", job=("j", "u", 1, 1), annotations=leaf(1, 1), labels=label)
    world.put(first, second)
    (fact,) = world.facts()
    assert (fact.tor_affinity, fact.leaf_states) == ("large-model-schema", bytes([2, 5]))
    world.pods.remove("uid-a")
    (fact,) = world.facts()
    assert fact.leaf_states == bytes([2, 5])
    again = World([fact])
    again.pods.note_job(accepted("j", "u", 2))
    again.put(second)
    assert again.facts() == []


def test_pods_without_word_of_leaves_say_nothing_of_them() -> None:
    world = World()
    world.put(a_pod("a", chips="Ascend910-0,Ascend910-1", annotations=leaf(0)))
    (fact,) = world.facts()
    assert (fact.tor_affinity, fact.leaf_states) == ("", b"")


def test_foreign_pods_tell_of_their_leaves_again_when_that_changes() -> None:
    world = World()
    world.put(a_pod("a", chips="Ascend910-0,Ascend910-1", labels={"tor-affinity": "normal-schema"}))
    (fact,) = world.facts()
    assert (fact.tor_affinity, fact.leaf_states) == ("normal-schema", b"")
    bound = a_pod(
        "a", chips="Ascend910-0,Ascend910-1", annotations=leaf(1), labels={"tor-affinity": "large-model-schema"}
    )
    world.put(bound)
    (fact,) = world.facts()
    assert (fact.foreign, fact.tor_affinity, fact.leaf_states) == (True, "large-model-schema", bytes([1]))
    world.put(bound)
    assert world.facts() == []


def test_pods_of_a_job_that_the_ledger_has_lost_keep_their_leaves_when_they_are_adopted() -> None:
    world = World()
    label = {"tor-affinity": "normal-schema"}
    chips = "Ascend910-0,Ascend910-1"
    world.put(a_pod("a", chips=chips, job=("j", "u", 1, 3), annotations=leaf(1, 1), labels=label))
    assert world.facts() == []
    world.now_ms = 1000
    (fact,) = world.facts()
    assert (fact.foreign, fact.tor_affinity, fact.leaf_states) == (True, "normal-schema", bytes([5]))
