"""What PodGroups say about faults, as facts."""

from typing import Any

import msgspec

from berth.formats.kubernetes.objects import PodGroup
from berth.schemas.columns import pack
from berth.schemas.envelope import encode
from berth.schemas.facts import MembersSeen
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.queues.facts import WaitingGroup
from berth.services.inventory.podgroups.steering import SteeringGroups

GRACE = {"fault-scheduling": "grace", "team": "x"}


def a_group(name: str, **metadata: Any) -> PodGroup:  # noqa: ANN401  # a builder for tests
    return msgspec.convert({"metadata": {"namespace": "team", "name": name, "uid": f"u-{name}", **metadata}}, PodGroup)


def members(job: str, group: str, pods: int = 1) -> MembersSeen:
    return MembersSeen("team", job, "u", rank=pack(range(pods), 4), podgroup=group)


def published(groups: SteeringGroups) -> list[GroupSeen]:
    """Facts that are due; they are stored, and nothing is due then."""
    facts = groups.due(7)
    for fact in facts:
        groups.note_published(fact)
    assert groups.due(8) == []
    return facts


def test_only_groups_that_steer_faults_have_facts() -> None:
    groups = SteeringGroups()
    limit = {"huawei.com/recover_policy_path": "pod", "ProcessRecoverStrategy": "", "other": "x"}
    groups.replace(
        [a_group("b", labels=GRACE), a_group("plain", labels={"team": "x"}), a_group("a", annotations=limit)]
    )
    groups.note_members(members("job", "plain"))
    assert published(groups) == [
        GroupSeen(
            "team", "a", "u-a", annotations={"ProcessRecoverStrategy": "", "huawei.com/recover_policy_path": "pod"},
            at_ms=7,
        ),
        GroupSeen("team", "b", "u-b", labels={"fault-scheduling": "grace"}, at_ms=7),
    ]  # fmt: skip


def test_labels_that_change_and_go() -> None:
    groups = SteeringGroups()
    groups.put(a_group("a", labels=GRACE | {"process-recover-enable": "on"}))
    assert len(published(groups)) == 1
    groups.put(a_group("a", labels=GRACE | {"process-recover-enable": "pause"}))
    assert [fact.labels["process-recover-enable"] for fact in published(groups)] == ["pause"]
    groups.put(a_group("a", labels=GRACE | {"process-recover-enable": "pause", "other": "y"}))
    assert published(groups) == []
    groups.put(a_group("a"))
    assert published(groups) == [GroupSeen("team", "a", gone=True, at_ms=7)]
    groups.put(a_group("a", labels=GRACE))
    assert len(published(groups)) == 1
    groups.drop("team", "a")
    assert [fact.gone for fact in published(groups)] == [True]
    groups.drop("team", "a")
    assert published(groups) == []


def test_a_fact_says_since_when_process_recovery_is_as_it_is() -> None:
    groups = SteeringGroups()
    groups.put(a_group("pg", labels={"process-recover-enable": "on"}))
    for fact in (first := groups.due(7)):
        groups.note_published(fact)
    groups.put(a_group("pg", labels={"process-recover-enable": "on", "fault-scheduling": "grace"}))
    for fact in (second := groups.due(8)):
        groups.note_published(fact)
    groups.put(a_group("pg", labels={"process-recover-enable": "pause", "fault-scheduling": "grace"}))
    for fact in (third := groups.due(9)):
        groups.note_published(fact)
    after = SteeringGroups()
    after.restore(third)
    after.put(a_group("pg", labels={"process-recover-enable": "pause", "fault-scheduling": "force"}))
    fourth = after.due(10)
    groups.put(a_group("pg", labels={"fault-scheduling": "grace"}))
    fifth = groups.due(11)
    facts = [*first, *second, *third, *fourth, *fifth]
    assert [(fact.at_ms, fact.recover_ms) for fact in facts] == [(7, 7), (8, 7), (9, 9), (10, 9), (11, 0)]


def test_jobs_of_a_group() -> None:
    groups = SteeringGroups()
    groups.put(a_group("a", labels=GRACE))
    groups.put(a_group("b", labels=GRACE))
    groups.note_members(members("two", "a"))
    groups.note_members(members("one", "a"))
    assert [fact.jobs for fact in published(groups)] == [["one", "two"], []]
    groups.note_members(members("one", "b"))
    assert [fact.jobs for fact in published(groups)] == [["two"], ["one"]]
    groups.note_members(members("two", "a", pods=0))
    assert [(fact.name, fact.jobs) for fact in published(groups)] == [("a", [])]


def test_a_restart_publishes_only_what_differs() -> None:
    before = SteeringGroups()
    before.replace([a_group("a", labels=GRACE), a_group("b", labels=GRACE), a_group("c", labels=GRACE)])
    before.note_members(members("one", "a"))
    facts = published(before)
    groups = SteeringGroups()
    groups.restore(facts)
    groups.note_members(members("one", "a"))
    groups.replace([a_group("a", labels=GRACE), a_group("b", labels={"fault-scheduling": "off"})])
    assert [(fact.name, fact.gone) for fact in published(groups)] == [("b", False), ("c", True)]


def test_a_list_without_a_group_takes_its_fact_away() -> None:
    groups = SteeringGroups()
    groups.replace([a_group("a", labels=GRACE)])
    published(groups)
    groups.replace([])
    assert [(fact.name, fact.gone) for fact in published(groups)] == [("a", True)]


WAITING = WaitingGroup("research", {"huawei.com/Ascend910": 800}, is_declared=True, pods=1, job="podgroup.a")


def test_what_a_group_waits_for_is_told_until_it_waits_no_more() -> None:
    groups = SteeringGroups()
    groups.replace([a_group("a"), a_group("b", labels=GRACE)])
    groups.tell({("team", "a"): ("u-a", WAITING), ("team", "b"): ("u-b", WAITING)})
    assert [(fact.name, fact.uid, fact.labels, fact.waiting) for fact in published(groups)] == [
        ("a", "u-a", {}, WAITING),
        ("b", "u-b", {"fault-scheduling": "grace"}, WAITING),
    ]
    groups.tell({("team", "a"): None, ("team", "b"): None})
    assert [(fact.name, fact.gone, fact.waiting) for fact in published(groups)] == [
        ("a", True, None),
        ("b", False, None),
    ]


def test_a_fact_of_a_group_that_waits_is_small() -> None:
    groups = SteeringGroups()
    name, resources = "n" * 253, {"cpu": 1 << 50, "memory": 1 << 50, "huawei.com/Ascend910": 1 << 50}
    groups.put(a_group(name))
    groups.tell({("team", name): ("u" * 36, msgspec.structs.replace(WAITING, minimum=resources, job="j" * 120))})
    (fact,) = published(groups)
    assert len(encode(fact)) < 1_024


def test_whether_it_was_admitted_is_as_it_was_when_it_was_told_of_first() -> None:
    groups = SteeringGroups()
    groups.put(a_group("a"))
    groups.tell({("team", "a"): ("u-a", WAITING)})
    assert len(published(groups)) == 1
    admitted = msgspec.structs.replace(WAITING, is_admitted=True)
    groups.tell({("team", "a"): ("u-a", admitted)})
    assert published(groups) == []
    groups.tell({("team", "a"): ("another", admitted)})
    assert [fact.waiting for fact in published(groups)] == [admitted]


def test_after_a_restart_what_was_told_counts_until_more_is_known_or_the_group_is_gone() -> None:
    groups = SteeringGroups()
    groups.restore([GroupSeen("team", name, f"u-{name}", waiting=WAITING) for name in ("a", "gone")])
    groups.replace([a_group("a")])
    assert published(groups) == [GroupSeen("team", "gone", gone=True, at_ms=7)]
    groups.tell({("team", "a"): None})
    assert published(groups) == [GroupSeen("team", "a", gone=True, at_ms=7)]
