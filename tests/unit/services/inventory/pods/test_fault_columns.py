"""What tells faults of pods, in the facts about them."""

from typing import Any

import msgspec
import pytest

from berth.schemas.columns import unpack
from berth.schemas.facts import PodPhase, PodRejection
from tests.unit.services.inventory.pods.test_collection import World, a_node, a_pod, accepted


def ended(code: int, *, restarted: bool = True) -> dict[str, Any]:
    """Status of a container that last ended with a code."""
    state = {"terminated": {"exitCode": code}}
    return {"state": {"running": {}}, "lastState": state} if restarted else {"state": state}


def test_what_tells_faults_of_pods_is_in_their_facts() -> None:
    world = World()
    world.nodes.replace([a_node("n1"), a_node("n2")])
    world.pods.note_job(accepted("llm", "u", 4))
    plain = {"hccl/rankIndex": "0"}
    marked = {"needVolcanoOpe": "delete", "backupNewPodName": "p-hot", "inHotSwitchFlow": "true", "other": "x"}
    world.put(
        a_pod("p0", job=("llm", "u", 1, 0), annotations=plain, labels={"fault-scheduling": "grace", "app": "web"}),
        a_pod("p1", job=("llm", "u", 1, 1), containers=[ended(0), ended(137), ended(1)]),
        a_pod("p2", job=("llm", "u", 1, 2), annotations=marked, labels={"fault-type": "SubHealth", "x": "y"}),
        a_pod(
            "p3", job=("llm", "u", 1, 3), annotations={"hccl/rankIndex": "7"}, containers=[ended(-1, restarted=False)],
            labels={"fault-scheduling": "force", "app": "mindie-ms-controller"},
        ),
    )  # fmt: skip
    (fact,) = world.facts()
    assert unpack(fact.exit_codes, 4) == [0, 137, 0, (1 << 32) - 1]
    assert [(one.rank, one.values) for one in fact.marks] == [
        (
            2,
            {
                "backupNewPodName": "p-hot",
                "fault-type": "SubHealth",
                "inHotSwitchFlow": "true",
                "needVolcanoOpe": "delete",
            },
        ),
        (3, {"hccl/rankIndex": "7"}),
    ]
    assert fact.steering == {"app": "mindie-ms-controller", "fault-scheduling": "grace|force"}
    again = World([fact])
    again.pods.note_job(accepted("llm", "u", 4))
    (gone,) = again.facts()  # no pod is listed: nothing tells faults of pods that are gone
    assert (gone.marks, gone.exit_codes, set(gone.phase)) == ([], b"", {PodPhase.GONE})
    world.pods.remove("uid-p2")
    world.pods.remove("uid-p3")
    (fact,) = world.facts()
    assert (fact.marks, fact.steering, unpack(fact.exit_codes, 4)) == (
        [],
        {"fault-scheduling": "grace"},
        [0, 137, 0, 0],
    )


def test_facts_of_pods_without_faults_have_no_columns_for_them() -> None:
    world = World()
    world.pods.note_job(accepted("llm", "u", 1))
    world.put(a_pod("p0", job=("llm", "u", 1, 0), annotations={"hccl/rankIndex": "0"}, containers=[{"state": {}}]))
    (fact,) = world.facts()
    assert (fact.exit_codes, fact.marks, fact.steering) == (b"", [], {})


def test_rank_0_that_is_a_worker_is_marked() -> None:
    world = World()
    world.pods.note_job(accepted("llm", "u", 2))
    worker = {"training.kubeflow.org/replica-type": "worker"}
    world.put(*[a_pod(f"p{rank}", job=("llm", "u", 1, rank), labels=worker) for rank in range(2)])
    (fact,) = world.facts()
    assert [(one.rank, one.values) for one in fact.marks] == [(0, worker)]


def test_the_step_of_a_pod_is_in_the_fact_and_the_newest_step_counts_for_a_rank() -> None:
    world = World()
    world.nodes.replace([a_node("n1"), a_node("n2")])
    world.pods.note_job(accepted("llm", "u", 2))
    old = a_pod("p0", job=("llm", "u", 1, 0), phase="Running")
    world.put(old, a_pod("p1", job=("llm", "u", 1, 1)))
    (fact,) = world.facts()
    assert fact.steps == b""
    world.put(a_pod("p0", job=("llm", "u", 1, 0), phase="Failed"))
    world.put(a_pod("p0-new", node="n2", job=("llm", "u", 1, 0), annotations={"berth/step": "2"}, phase="Failed"))
    (fact,) = world.facts()
    assert unpack(fact.steps, 4) == [2, 0]
    assert [PodPhase(phase) for phase in fact.phase] == [PodPhase.FAILED, PodPhase.RUNNING]
    world.pods.remove("uid-p0")
    assert world.facts() == []
    again = World([fact])
    again.pods.note_job(accepted("llm", "u", 2))
    (gone,) = again.facts()
    assert unpack(gone.steps, 4) == [2, 0]


@pytest.mark.parametrize("phase", ["Pending", "Running", "Failed"])
def test_a_backup_pod_counts_for_its_rank_only_when_the_pod_beside_it_is_gone_or_has_ended(phase: str) -> None:
    world = World()
    world.nodes.replace([a_node("n1"), a_node("n2")])
    world.pods.note_job(accepted("llm", "u", 1))
    world.put(a_pod("p0", job=("llm", "u", 1, 0), phase="Running"))
    (before,) = world.facts()
    backup = a_pod("p0-hot", node="n2", job=("llm", "u", 1, 0), annotations={"berth/step": "1"}, phase=phase)
    world.put(backup)
    assert world.facts() == [], "the pod of the rank is still there"
    world.pods.remove("uid-p0")
    (fact,) = world.facts()
    assert (unpack(before.steps, 4), unpack(fact.steps, 4)) == ([], [1])
    assert fact.phase != before.phase or phase == "Running"


def test_a_step_that_is_no_number_is_none_and_a_reason() -> None:
    world = World()
    world.pods.note_job(accepted("llm", "u", 1))
    world.put(a_pod("p0", job=("llm", "u", 1, 0), annotations={"berth/step": "two"}))
    (fact,) = world.facts()
    assert (fact.steps, len(fact.phase)) == (b"", 1)
    assert list(world.pods.reasons.values()) == [
        "pod team/p0: annotation berth/step is 'two': expected a whole number from 1"
    ]


def test_rejections_are_in_the_facts_with_the_owner_of_the_pods() -> None:
    world = World()
    world.pods.note_job(accepted("llm", "u", 2))
    world.put(*(a_pod(f"p{rank}", job=("llm", "u", 1, rank), phase="Pending") for rank in range(2)))
    (fact,) = world.facts()
    assert (fact.rejections, fact.owner) == (b"", "")
    rejected = a_pod("p1", job=("llm", "u", 1, 1), phase="Failed")
    status = msgspec.structs.replace(rejected.status, reason="OutOfcpu")
    world.put(msgspec.structs.replace(rejected, status=status))
    (fact,) = world.facts()
    assert (fact.rejections, fact.owner) == (bytes([0, PodRejection.OTHER]), "uid-p0")
    world.pods.remove("uid-p1")
    assert world.facts() == [], "what was rejected stays"
    again = World([fact])
    again.pods.note_job(accepted("llm", "u", 2))
    (gone,) = again.facts()
    assert gone.rejections == bytes([0, PodRejection.OTHER])
