"""PodGroups: who lets them in, when, and what their status says.

Longer than 400 lines because all tests look at one kind of world.
"""

from typing import Any

import msgspec
import pytest

from berth.formats.ascend.report_error import NO_REPORT, STALE
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.policies import PriorityClass
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.services.inventory.effects import PatchPodGroup
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.nodes.free_chips import Unreported
from berth.services.inventory.podgroups import collection
from berth.services.inventory.podgroups.capacity import Capacity
from berth.services.inventory.podgroups.status import dequeues, enqueued_ms
from tests.support.gang_world import CHIPS, GangWorld, a_group, a_pod, facts_of

VCJOB = ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")
ACJOB = ("mindxdl.gitee.com/v1", "AscendJob", "llm", "ac-1")
ENQUEUED = "huawei.com/schedule_enqueue_time"
DEQUEUED = "huawei.com/schedule_dequeue_frequency"
VOLCANO = GangSettings(scheduler_names=("berth", "volcano"))


class GroupWorld(GangWorld):
    """An API server that takes patches of PodGroups."""

    def __init__(
        self, settings: GangSettings = VOLCANO, *, chips: int = 16, cpu: int = 100_000, memory: int = 0
    ) -> None:
        super().__init__(settings)
        self.shown: dict[str, PodGroup] = {}
        self.free(chips, cpu=cpu, memory=memory)
        self._version = 100

    def free(self, chips: int, *, cpu: int = 100_000, memory: int = 0) -> None:
        self.gangs.groups.set_capacity(Capacity({CHIPS: chips}, cpu, memory))

    def show(self, *groups: PodGroup) -> None:
        for group in groups:
            self.shown[group.metadata.name] = group
            self.gangs.set_group(group)

    def write(self) -> list[PatchPodGroup]:
        """Take the patches that are wanted; later changes come back as the watch brings them."""
        taken, self.patches = self.patches, []
        for patch in taken:
            group = self.shown[patch.name]
            assert patch.patch["metadata"]["resourceVersion"] == group.metadata.resource_version  # type: ignore[index]
            self._version += 1
            self.show(patched(group, patch.patch, str(self._version)))
        return taken

    def run(self, *, after_s: float = 0) -> None:
        """Settle until nothing more is wanted."""
        self.settle(after_s=after_s)
        rounds = 0
        while self.write():
            self.settle()
            rounds += 1
            assert rounds < 10, "patches without end"

    def phase(self, name: str = "pg") -> str:
        return self.shown[name].status.phase

    def condition(self, name: str = "pg") -> tuple[str, str, str]:
        (found,) = self.shown[name].status.conditions or []
        assert found.status == "True"
        return found.type, found.reason, found.message


def patched(group: PodGroup, patch: dict[str, Any], version: str) -> PodGroup:
    """Object after a merge patch."""

    def merge(old: Any, new: Any) -> Any:  # noqa: ANN401 - JSON
        if not isinstance(new, dict):
            return new
        base = dict(old) if isinstance(old, dict) else {}
        for key, value in new.items():
            if value is None:
                base.pop(key, None)
            else:
                base[key] = merge(base.get(key), value)
        return base

    tree = merge(msgspec.to_builtins(group), patch)
    tree["metadata"]["resourceVersion"] = version
    return msgspec.convert(tree, PodGroup)


def pending(name: str = "pg", chips: int = 8, **more: Any) -> PodGroup:  # noqa: ANN401 - whatever a group can have
    return a_group(name, phase="Pending", resources={CHIPS: str(chips), "cpu": "4", "pods": "4"}, **more)


@pytest.mark.parametrize("text", ["9" * 5_000, "0" * 5_000, "\u00b2"])
def test_what_no_number_can_be_is_none(text: str) -> None:
    notes = {ENQUEUED: text, "huawei.com/schedule_dequeue_frequency": text}
    group = a_group("pg", annotations=notes)
    assert (enqueued_ms(group), dequeues(group)) == (0, 0)


def test_a_group_is_let_in_when_its_chips_are_free() -> None:
    world = GroupWorld(chips=4)
    world.show(pending())
    world.run()
    assert world.phase() == "Pending"
    assert world.condition() == ("Unschedulable", "JobEnqueueFailed", f"asks for 8 {CHIPS}, 4 are free")
    world.free(8)
    world.run()
    assert world.phase() == "Inqueue"
    assert world.shown["pg"].metadata.annotation(ENQUEUED) == str(world.now_ms)
    assert world.shown["pg"].status.conditions == []


def test_nodes_without_a_recent_report_are_named_where_chips_are_lacking() -> None:
    world = GroupWorld()
    stale = Unreported(STALE, ("n0", "n1", "n2", "n3"), 32)
    missing = Unreported(NO_REPORT, ("n9",), 1)
    world.gangs.groups.set_capacity(Capacity({CHIPS: 0}, 0, 0, unreported={CHIPS: [stale, missing], "other": [stale]}))
    world.show(pending())
    world.run()
    assert world.condition()[2] == (
        f"asks for 8 {CHIPS}, 0 are free;"
        " 32 are on 4 nodes whose newest report is too old, which take no new work: n0, n1, n2 and 1 more;"
        " 1 is on 1 node without a report that can be read, which takes no new work: n9"
    )


def test_other_amounts_alone_are_not_written_at_once() -> None:
    world = GroupWorld(chips=4)
    world.show(pending("a"), pending("b"))
    world.run()
    for chips in (5, 6, 7):
        world.free(chips)
        assert world.settle(after_s=60) == []
    assert world.condition("a")[2] == f"asks for 8 {CHIPS}, 4 are free"
    world.run(after_s=120)
    assert {world.condition(name)[2] for name in "ab"} == {f"asks for 8 {CHIPS}, 7 are free"}
    world.free(16, cpu=1)
    world.run()
    assert (world.phase("a"), world.phase("b")) == ("Inqueue", "Inqueue"), "an admission waits for nothing"


def test_another_resource_that_is_missing_is_written_at_once() -> None:
    world = GroupWorld(GangSettings(scheduler_names=("volcano",), force_enqueue=False), chips=4)
    world.show(pending())
    world.run()
    world.free(8, cpu=1000)
    world.run(after_s=1)
    assert world.condition()[2] == "asks for 4000 thousandths of a CPU, 1000 are free"


def test_nothing_is_let_in_before_it_is_known_what_is_free() -> None:
    world = GangWorld(VOLCANO)
    world.gangs.set_group(pending())
    assert world.settle() == []
    world.gangs.groups.set_capacity(Capacity({CHIPS: 8}, 0, 0))
    (patch,) = world.settle()
    assert isinstance(patch, PatchPodGroup)
    assert patch.patch["status"] == {"phase": "Inqueue"}
    assert patch.resource_version == "1"


def test_a_group_without_minimum_resources_is_let_in() -> None:
    world = GroupWorld(chips=0)
    world.show(a_group("pg", phase=""))
    world.run()
    assert world.phase() == "Inqueue"


def test_resources_that_cannot_be_read_keep_the_group_out() -> None:
    world = GroupWorld()
    world.show(a_group("pg", phase="Pending", resources={CHIPS: "1.5"}))
    world.run()
    assert world.condition() == (
        "Unschedulable", "JobValidateFailed", f"spec.minResources.{CHIPS} is '1.5': expected a whole number",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "code", "words"),
    [
        ("huawei.com/Ascend910-2c", "unsupported-vnpu", "whole chips, no virtual NPUs"),
        ("huawei.com/Ascend910-12c.3cpu.32g", "unsupported-vnpu", "whole chips, no virtual NPUs"),
        ("huawei.com/npu-core", "unsupported-vnpu", "whole chips, no virtual NPUs"),
        ("huawei.com/Ascend310P-V", "unsupported-policy", "cards of several kinds in one node"),
    ],
)
def test_a_group_for_virtual_npus_is_refused_as_such(resource: str, code: str, words: str) -> None:
    world = GroupWorld()
    world.show(a_group("pg", phase="Pending", resources={resource: "8"}))
    world.run()
    _, reason, message = world.condition()
    assert (world.phase(), reason) == ("Pending", "JobValidateFailed")
    assert message.startswith(f"spec.minResources.{resource} is '8' ({code}): ")
    assert words in message


@pytest.mark.parametrize("resources", [{"huawei.com/rdma_shared": "1"}, {"huawei.com/Ascend910-2c": "0"}])
def test_resources_that_are_no_chips_do_not_keep_a_group_out(resources: dict[str, str]) -> None:
    world = GroupWorld()
    world.show(a_group("pg", phase="Pending", resources=resources))
    world.run()
    assert world.phase() == "Inqueue"


def test_by_force_only_chips_count_and_otherwise_cpu_and_the_claims_of_others() -> None:
    forced = GroupWorld(cpu=1000)
    forced.show(pending("a"), pending("b", 16))
    forced.run()
    assert (forced.phase("a"), forced.phase("b")) == ("Inqueue", "Inqueue")
    careful = GroupWorld(GangSettings(scheduler_names=("volcano",), force_enqueue=False))
    careful.show(pending("b", 16), pending("a"))
    careful.run()
    assert (careful.phase("a"), careful.phase("b")) == ("Inqueue", "Pending")
    assert careful.condition("b")[2] == f"asks for 16 {CHIPS}, 16 are free, of which other admitted PodGroups claim 8"
    careful.free(16, cpu=1000)
    careful.show(pending("c", 0))
    careful.run()
    assert careful.condition("c")[2].startswith("asks for 4000 thousandths of a CPU, 1000 are free")


def test_the_order_is_priority_then_times_sent_back_then_age_then_name() -> None:
    world = GroupWorld(GangSettings(scheduler_names=("volcano",), force_enqueue=False), chips=8)
    world.show(
        pending("a", created="2026-11-20T09:00:00Z", annotations={DEQUEUED: "1"}),
        pending("b", created="2026-11-20T11:00:00Z"),
        pending("d"),
        pending("c"),
    )
    order = []
    for _ in range(4):
        world.run()
        (name,) = [name for name in world.shown if world.phase(name) == "Inqueue"]
        order.append(name)
        world.gangs.drop_group("ns", name)
        del world.shown[name]
    assert order == ["c", "d", "b", "a"]
    world.show(pending("e"), pending("f"))
    world.pods(a_pod("f-0", group="f", scheduler="volcano", priority=5))
    world.run()
    assert (world.phase("e"), world.phase("f")) == ("Pending", "Inqueue")


@pytest.mark.parametrize(
    ("kind", "spec", "is_ours"),
    [
        (VCJOB, {"schedulerName": "volcano"}, True),
        (VCJOB, {"schedulerName": "other"}, False),
        (ACJOB, {"schedulerName": "volcano"}, True),
        (ACJOB, {"replicaSpecs": {"Worker": {"template": {"spec": {"schedulerName": "other"}}}}}, False),
        (VCJOB, {}, True),
    ],
)
def test_a_group_without_pods_belongs_to_the_scheduler_of_its_owner(
    kind: tuple[str, str, str, str],
    spec: dict[str, Any],
    is_ours: bool,  # noqa: FBT001 - a column
) -> None:
    world = GroupWorld()
    world.show(pending(owner=kind))
    world.run()
    assert world.phase() == "Pending"
    key = OwnerKey("VolcanoJob" if kind is VCJOB else "AscendJob", "ns", "llm")
    assert world.looks == [key]
    world.gangs.set_owner(key, facts_of(key, spec))
    world.run()
    assert world.phase() == ("Inqueue" if is_ours else "Pending")


def test_an_owner_that_could_not_be_read_is_read_again_and_one_that_is_gone_is_not() -> None:
    key = OwnerKey("VolcanoJob", "ns", "llm")
    world = GroupWorld(GangSettings())
    world.show(pending(owner=VCJOB))
    world.run()
    world.gangs.set_owner(key, None)  # refused, as by an API server that has just started
    world.run()
    world.run(after_s=29)
    assert world.looks == [key]
    assert world.gangs.next_due_ms() == world.now_ms + 1_000
    world.run(after_s=1)
    assert world.looks == [key, key]
    world.run(after_s=100)
    assert world.looks == [key, key]  # the answer is on its way
    world.gangs.set_owner(key, None, is_gone=True)
    world.run(after_s=100)
    assert (world.looks, world.phase()) == ([key, key], "Pending")

    world = GroupWorld(GangSettings())
    world.show(pending(owner=VCJOB))
    world.run()
    world.gangs.set_owner(key, None)
    world.run()
    world.run(after_s=30)
    world.gangs.set_owner(key, facts_of(key, {"schedulerName": "berth"}))
    world.run()
    assert world.phase() == "Inqueue"


@pytest.mark.parametrize(
    ("settings", "phase"),
    [
        (GangSettings(), "Pending"),
        (VOLCANO, "Inqueue"),
        (GangSettings(groups_without_scheduler=True), "Inqueue"),
        (GangSettings(scheduler_names=("volcano",), groups_without_scheduler=False), "Pending"),
    ],
)
def test_groups_that_nobody_claims_are_ours_in_volcanos_place_or_by_a_setting(
    settings: GangSettings, phase: str
) -> None:
    world = GroupWorld(settings)
    world.show(pending())
    world.run()
    assert world.phase() == phase


def test_groups_of_pods_that_others_place_are_left_alone() -> None:
    world = GroupWorld()
    world.pods(a_pod("p-0", group="pg", scheduler="default-scheduler"))
    world.show(pending())
    world.run()
    assert world.phase() == "Pending"
    world.gangs.drop_pod("uid-p-0")
    world.run()
    assert world.phase() == "Inqueue"


def started(world: GroupWorld, phases: list[str]) -> None:
    """Pods of the group: bound and in these phases; empty for one without a node."""
    for index, phase in enumerate(phases):
        node = "n" if phase else ""
        world.pods(a_pod(f"p-{index}", group="pg", scheduler="volcano", node=node, phase=phase or "Pending"))


def test_phases_counts_and_conditions_follow_the_pods() -> None:
    world = GroupWorld()
    world.show(pending())
    world.run()
    started(world, ["", "", "", ""])
    world.run()
    assert world.phase() == "Inqueue"
    started(world, ["Pending", "Pending", "Running", ""])
    world.run()
    assert world.phase() == "Inqueue"
    started(world, ["Pending", "Running", "Running", "Running"])
    world.run(after_s=5)
    assert world.phase() == "Running"
    assert world.shown["pg"].status.running == 3
    assert world.condition() == ("Scheduled", "tasks in gang are ready to be scheduled", "")
    assert ENQUEUED not in (world.shown["pg"].metadata.annotations or {})
    started(world, ["Running", "Running", "Running", "Failed"])
    world.run()
    assert world.phase() == "Unknown"
    assert (world.shown["pg"].status.running, world.shown["pg"].status.failed) == (3, 1)
    started(world, ["Succeeded"] * 4)
    world.run(after_s=5)
    assert world.phase() == "Completed"
    assert world.shown["pg"].status.succeeded == 4
    for index in range(4):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.run(after_s=5)
    assert (world.phase(), world.shown["pg"].status.succeeded) == ("Completed", 4)


@pytest.mark.parametrize(
    ("phases", "phase"),
    [
        (["Succeeded", "Failed"], "Inqueue"),  # one less than it needs
        (["Succeeded", "Failed", "Succeeded"], "Completed"),
        (["Succeeded", "Failed", "Succeeded", "Succeeded"], "Completed"),
        (["Succeeded", "Failed", "Succeeded", "Running"], "Running"),
        (["Succeeded", "Failed", "Succeeded", "Succeeded", ""], "Running"),
    ],
)
def test_batch_job_life_a_group_is_completed_when_its_last_pod_has_ended_well_or_not(
    phases: list[str], phase: str
) -> None:
    world = GroupWorld(chips=0)
    world.show(pending(least=3))
    started(world, ["Running"] * len(phases))
    world.run()
    started(world, phases)
    world.run(after_s=5)
    assert world.phase() == phase


def test_pods_that_were_bound_before_they_had_their_group_count_for_it() -> None:
    """Volcano's controller makes a PodGroup for a pod without one, and may be slower than Berth."""
    world = GroupWorld(chips=0)
    world.pods(a_pod("p", scheduler="volcano"))
    world.run()
    world.pods(a_pod("p", scheduler="volcano", node="n", phase="Pending"))
    world.run()
    world.show(pending(least=1), pending("other", least=1))
    world.pods(a_pod("p", group="pg", scheduler="volcano", node="n", phase="Running"))
    world.run(after_s=5)
    assert (world.phase(), world.shown["pg"].status.running) == ("Running", 1)
    assert world.phase("other") == "Pending"
    world.pods(a_pod("p", group="other", scheduler="volcano", node="n", phase="Running"))
    world.run(after_s=5)
    assert (world.phase(), world.shown["pg"].status.running) == ("Unknown", 0)
    assert (world.phase("other"), world.shown["other"].status.running) == ("Running", 1)
    world.pods(a_pod("p", group="other", scheduler="volcano", node="n", phase="Succeeded"))
    world.run(after_s=5)
    assert (world.phase("other"), world.shown["other"].status.succeeded) == ("Completed", 1)
    world.gangs.drop_pod("uid-p")
    world.run(after_s=5)
    assert (world.phase("other"), world.gangs.has_pods("ns", "other")) == ("Completed", False)


def test_a_group_counts_a_pod_no_more_once_the_group_exists_that_the_pod_names_by_now() -> None:
    world = GroupWorld(chips=0)
    world.show(pending(least=1))
    world.pods(a_pod("p", group="pg", scheduler="volcano", node="n", phase="Running"))
    world.run(after_s=5)
    world.pods(a_pod("p", group="other", scheduler="volcano", node="n", phase="Running"))
    world.run(after_s=5)
    assert (world.phase(), world.shown["pg"].status.running) == ("Running", 1)
    world.show(pending("other", least=1))
    world.run(after_s=5)
    assert (world.phase(), world.shown["pg"].status.running) == ("Unknown", 0)
    assert (world.phase("other"), world.shown["other"].status.running) == ("Running", 1)


def test_a_group_is_not_completed_before_it_has_as_many_pods_as_it_needs() -> None:
    world = GroupWorld(chips=0)
    world.pods(a_pod("p", scheduler="volcano", node="n", phase="Running"))
    world.show(pending(least=2, chips=16))
    world.pods(a_pod("p", group="pg", scheduler="volcano", node="n", phase="Running"))
    world.run(after_s=5)
    assert (world.phase(), world.shown["pg"].status.running) == ("Pending", 1)
    assert world.gangs.has_pods("ns", "pg")


@pytest.mark.parametrize(("owner", "phase"), [(None, "Completed"), (VCJOB, "Unknown")], ids=["alone", "of-a-job"])
def test_12_a_group_whose_pods_are_collected_one_by_one_follows_them_to_the_end(
    owner: tuple[str, str, str, str] | None, phase: str
) -> None:
    world = GroupWorld()
    world.show(a_group("pg", least=2, phase="Running", owner=owner))
    for name, pod_phase in (("p-0", "Succeeded"), ("p-1", "Running")):
        world.pods(a_pod(name, group="pg", node="n1", phase=pod_phase))
    world.run()
    world.gangs.drop_pod("uid-p-0")
    world.run()
    world.pods(a_pod("p-1", group="pg", node="n1", phase="Succeeded"))
    world.run()
    assert world.shown["pg"].status.phase == phase
    world.gangs.drop_pod("uid-p-1")
    world.run()
    assert world.shown["pg"].status.phase == phase


def test_12_pods_that_come_to_a_group_after_its_end_begin_anew() -> None:
    world = GroupWorld()
    world.show(a_group("pg", least=2, phase="Completed", status={"succeeded": 2}))
    world.pods(a_pod("p-2", group="pg", node="n1", phase="Running"))
    world.run()
    assert world.shown["pg"].status.phase == "Completed", "one of two pods has a node"
    world.pods(a_pod("p-3", group="pg", node="n1", phase="Running"))
    world.run()
    assert (world.shown["pg"].status.phase, world.shown["pg"].status.succeeded) == ("Running", 0)


def test_counts_and_messages_are_written_at_intervals_and_phases_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_STATUS_APART_MS", 5_000)
    world = GroupWorld(VOLCANO)
    world.show(a_group("pg", least=3))
    started(world, ["Running", "Pending"])
    world.run()
    assert world.shown["pg"].status.running == 1
    started(world, ["Running", "Running"])
    world.run(after_s=2)
    assert world.shown["pg"].status.running == 1
    assert world.gangs.next_due_ms() == world.now_ms + 3_000
    started(world, ["Running", "Running", "Running"])
    world.run()
    assert (world.phase(), world.shown["pg"].status.running) == ("Running", 3)


def test_counts_and_messages_are_written_within_a_second_by_default() -> None:
    world = GroupWorld()
    world.show(a_group("pg", least=2))
    started(world, ["Running", "Pending"])
    world.run()
    for phases, counted in ((["Running", "Running"], (2, 0)), (["Running", "Succeeded"], (1, 1))):
        started(world, phases)
        world.run(after_s=0)
        world.run(after_s=1)
        status = world.shown["pg"].status
        assert (status.running, status.succeeded) == counted


def test_why_pods_wait_is_told_as_a_condition() -> None:
    world = GroupWorld()
    world.show(a_group("pg", least=2))
    started(world, [""])
    world.run()
    assert world.condition() == ("Unschedulable", "JobValidateFailed", "1 of at least 2 pods exists")
    started(world, ["", ""])
    world.run(after_s=5)
    world.status("podgroup.pg", "waiting", sentence="0 of 9 nodes have room", code="no-room")
    world.run(after_s=5)
    assert world.condition() == ("Unschedulable", "NotEnoughResources", "0 of 9 nodes have room")
    world.status("podgroup.pg", "rejected", sentence="no such policy", code="unsupported-policy")
    world.run(after_s=5)
    assert world.condition() == ("Unschedulable", "JobValidateFailed", "no such policy")
    (condition,) = world.shown["pg"].status.conditions or []
    assert condition.last_transition_time == "1970-01-01T00:16:55Z"
    world.verdict("podgroup.pg", "tombstone")
    world.run(after_s=5)
    assert world.condition() == ("Unschedulable", "JobValidateFailed", "no such policy"), "the name is forgotten"
    assert len(condition.transition_id) == 32


def test_a_condition_is_written_again_when_its_cause_changes_and_not_for_numbers() -> None:
    world = GroupWorld()
    world.show(a_group("pg", least=2))
    started(world, ["", ""])
    world.run(after_s=5)

    def said(sentence: str) -> str:
        world.status("podgroup.pg", "waiting", sentence=sentence, code="no-room")
        world.run(after_s=5)
        return world.condition()[2]

    first = "0 of 9 nodes fit: 8 have fewer than 8 free chips, 1 is cordoned"
    assert said(first) == first
    assert said("0 of 9 nodes fit: 5 are cordoned, 4 have fewer than 8 free chips") == first
    other = "0 of 9 nodes fit: 8 have fewer than 8 free chips, 1 is not ready"
    assert said(other) == other


def test_conditions_of_others_are_kept() -> None:
    world = GroupWorld()
    other = {"type": "Fine", "status": "True", "transitionID": "t", "reason": "r", "message": "m"}
    world.show(a_group("pg", least=2, status={"conditions": [other]}))
    started(world, ["Running", "Running"])
    world.run()
    assert [item.type for item in world.shown["pg"].status.conditions or []] == ["Fine", "Scheduled"]


def test_a_claim_is_taken_back_from_a_group_that_cannot_start_and_it_comes_again_at_the_end() -> None:
    world = GroupWorld()
    world.show(pending())
    world.run()
    started(world, ["", "", "", ""])
    world.run()
    uid = world.requests["podgroup.pg"].uid
    world.status("podgroup.pg", "waiting", sentence="no room", code="no-room")
    world.run(after_s=299)
    assert world.phase() == "Inqueue"
    world.run(after_s=1)
    assert world.phase() == "Pending"
    assert world.shown["pg"].metadata.annotations == {DEQUEUED: "1"}
    assert world.withdrawn == [("podgroup.pg", uid, "its PodGroup is Pending again")]
    why = "it could not start for 300 s and released its claim"
    assert world.condition() == ("Unschedulable", "JobEnqueueFailed", why)
    assert world.hold("podgroup.pg") == f"PodGroup is Pending: {why}"
    world.run(after_s=29)
    assert world.phase() == "Pending"
    world.run(after_s=1)
    assert world.phase() == "Inqueue"
    assert world.requests["podgroup.pg"].uid != uid


def test_a_claim_lasts_no_longer_if_the_clock_of_the_inventory_before_was_ahead() -> None:
    world = GroupWorld()
    ahead = str(world.now_ms + 3_600_000)
    world.show(a_group("pg", phase="Inqueue", annotations={ENQUEUED: ahead}, resources={CHIPS: "8"}))
    world.run()
    assert world.shown["pg"].metadata.annotation(ENQUEUED) == str(world.now_ms)
    world.run(after_s=299)
    assert world.phase() == "Inqueue"
    world.run(after_s=1)
    assert world.phase() == "Pending"


def test_a_claim_stays_with_a_group_that_has_its_chips_or_when_it_is_never_taken_back() -> None:
    world = GroupWorld()
    world.show(pending())
    world.run()
    started(world, ["", "", "", ""])
    world.run()
    world.status("podgroup.pg", "placed")
    world.run(after_s=10_000)
    assert world.phase() == "Inqueue"
    patient = GroupWorld(GangSettings(scheduler_names=("volcano",), claim_s=0))
    patient.show(pending())
    patient.run()
    patient.run(after_s=100_000)
    assert patient.phase() == "Inqueue"


def test_a_patch_is_not_repeated_until_the_object_has_changed_or_it_was_given_up() -> None:
    world = GroupWorld()
    world.show(pending())
    world.settle()
    assert len(world.patches) == 1
    world.free(12)
    world.settle(after_s=60)
    assert len(world.patches) == 1
    world.gangs.group_failed("ns", "pg")
    world.settle()
    assert len(world.patches) == 1
    assert world.gangs.next_due_ms() == world.now_ms + 30_000
    world.settle(after_s=30)
    assert len(world.patches) == 2
    world.show(pending(version="2", labels={"a": "b"}))  # somebody else was first
    world.settle()
    assert [patch.resource_version for patch in world.patches] == ["1", "1", "2"]


def test_podgroup_patched_by_clusterd_at_the_same_time() -> None:
    recover, status = "process-recover-enable", "process-recover-status"
    world = GroupWorld()
    world.show(a_group("pg", phase="Running", labels={recover: "on", "own": "x"}))
    started(world, ["Running"] * 4)
    world.run()
    started(world, ["Running", "Running", "Running", "Failed"])
    world.settle(after_s=5)
    (first,) = world.patches
    theirs = {"metadata": {"labels": {recover: "pause"}, "annotations": {status: "2"}}}
    world.show(patched(world.shown["pg"], theirs, "900"))
    assert first.resource_version != "900", "the server refuses a patch of the version before theirs"
    world.patches.clear()
    world.settle()
    (second,) = world.patches
    assert (second.resource_version, second.patch["status"]) == ("900", first.patch["status"])
    assert set(second.patch) == {"metadata", "status"}
    world.run()
    group = world.shown["pg"]
    assert (group.status.phase, group.status.running, group.status.failed) == ("Unknown", 3, 1)
    assert group.metadata.labels == {recover: "pause", "own": "x"}
    assert (group.metadata.annotations or {})[status] == "2"


def test_a_group_that_was_made_again_is_another_one() -> None:
    world = GroupWorld()
    world.show(pending())
    world.run()
    world.gangs.drop_group("ns", "pg")
    world.run()
    world.show(pending(version="500"))
    world.run()
    assert world.phase() == "Inqueue"


def test_a_job_that_was_set_aside_for_an_error_of_berth_is_not_said_to_be_wrong() -> None:
    world = GroupWorld()
    world.show(a_group("pg", least=1))
    started(world, [""])
    world.run()
    world.status("podgroup.pg", "waiting", sentence="set aside: an error of Berth ended its decision", code="internal")
    world.run(after_s=5)
    assert world.condition() == ("Unschedulable", "InternalError", "set aside: an error of Berth ended its decision")


@pytest.mark.parametrize(("desired", "phase"), [("4", "Inqueue"), ("1", "Pending")])
def test_the_first_pods_of_a_rollout_are_let_in_where_the_minimum_would_not_fit(desired: str, phase: str) -> None:
    owner, key = ("apps/v1", "ReplicaSet", "d", "rs-1"), OwnerKey("ReplicaSet", "ns", "d")
    world = GroupWorld(chips=2)
    world.show(a_group("pg", least=4, phase="Pending", owner=owner, resources={CHIPS: "8"}))
    world.pods(a_pod("d-0", group="pg", chips=2, owner=owner))
    world.run()
    annotations = {"deployment.kubernetes.io/desired-replicas": desired}
    world.gangs.set_owner(key, facts_of(key, {"replicas": 1}, uid="rs-1", annotations=annotations))
    world.run()
    assert world.phase() == phase


def a_class(name: str, value: int) -> PriorityClass:
    return PriorityClass(metadata=Meta(name=name), value=value)


def test_a_priority_that_is_raised_while_podgroups_wait_decides_who_is_admitted() -> None:
    """All of them were admitted as soon as there was room, and the first that had pods got it."""
    world = GroupWorld(chips=0)
    world.gangs.set_priority_classes([a_class("low", 10), a_class("high", 100)])
    world.show(*(pending(name, least=1, priority_class="low") for name in "abcd"))
    world.run()
    raised = world.shown["d"]
    world.show(msgspec.structs.replace(raised, spec=msgspec.structs.replace(raised.spec, priority_class_name="high")))
    world.run()
    world.free(8)
    world.run()
    assert [world.phase(name) for name in "abcd"] == ["Pending", "Pending", "Pending", "Inqueue"]
    world.pods(a_pod("d-0", group="d", scheduler="volcano"))
    world.run()
    assert world.phase("a") == "Pending"
    world.verdict("podgroup.d")
    world.status("podgroup.d", "waiting")
    world.run()
    assert [world.phase(name) for name in "abc"] == ["Inqueue"] * 3, "the order of the queue decides"


def test_a_podgroup_without_pods_keeps_the_room_from_lower_priorities_for_a_moment_only() -> None:
    world = GroupWorld(chips=0)
    world.gangs.set_priority_classes([a_class("low", 10), a_class("high", 100)])
    world.show(pending("a", priority_class="low"), pending("b", priority_class="high"))
    world.run()
    world.free(8)
    world.run()
    assert (world.phase("a"), world.phase("b")) == ("Pending", "Inqueue")
    world.run(after_s=4.9)
    assert world.phase("a") == "Pending"
    assert world.gangs.next_due_ms() == world.now_ms + 100
    world.run(after_s=0.1)
    assert world.phase("a") == "Inqueue"
