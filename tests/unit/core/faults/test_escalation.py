"""Which pods of a faulty job leave, how, and when more of them do: the list of tests of the specification.

Longer than 400 lines because each line of the list of cases about faults is a test of that name here.
"""

import itertools
from typing import Any

import msgspec
import pytest

from berth.core.faults.diagnosis import diagnose
from berth.core.faults.escalation import NOTHING, Escalation, Progress, Wanted, escalate
from berth.core.faults.model import JobDiagnosis, NodeView, PodFault, PodFaultKind, PodView
from berth.core.faults.scopes import GangShape, ranks_given_up
from berth.core.requests.fault_rules import FaultRules, rules_of
from berth.schemas.facts import PodPhase
from berth.schemas.ledger import Settings
from berth.schemas.recovery import Recovery

SETTINGS = Settings(plan_before_delete=False)
PARITY = Settings(reference_parity=True)
PLANNED = Settings()
PLAIN = GangShape(8)
A3 = GangShape(8, superpods=(0, 0, 0, 0, 1, 1, 1, 1))
RA_1 = GangShape(8, rank_block=1, superpods=(0, 0, 0, 0, 1, 1, 1, 1), is_rack=True)
RA_4 = GangShape(16, rank_block=4, superpods=(*[0] * 8, *[1] * 8), is_rack=True)
LEVELS = GangShape(16, levels=(2, 4, 8))
GRACE = {"fault-scheduling": "grace"}
PODS_FIRST = {**GRACE, "pod-rescheduling": "on"}
KINDS = (
    PodFaultKind.NODE_UNHEALTHY,
    PodFaultKind.CARD_UNHEALTHY,
    PodFaultKind.POD_FAILED,
    PodFaultKind.SEPARATE,
    PodFaultKind.SUB_HEALTH,
)
START = 1_000_000


def labelled(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> FaultRules:
    return rules_of(labels if labels is not None else GRACE, annotations or {})


def broken(*ranks: int, kind: PodFaultKind = PodFaultKind.CARD_UNHEALTHY, **fields: Any) -> list[PodFault]:  # noqa: ANN401  # a builder
    master = fields.pop("has_master", True)
    return [PodFault(rank, f"n{rank}", kind, 0, "it broke", rank == 0 and master, **fields) for rank in ranks]


def found(
    rules: FaultRules,
    faults: list[PodFault],
    shape: GangShape = PLAIN,
    progress: Progress = Progress(),  # noqa: B008  # it is immutable
    settings: Settings = SETTINGS,
    at_ms: int = START,
    seen_ms: int = START,
) -> Escalation:
    diagnosis = JobDiagnosis(rules, tuple(faults))
    return escalate(diagnosis, shape, progress, settings, at_ms=at_ms, seen_ms=seen_ms)


def only(escalation: Escalation) -> Wanted:
    assert len(escalation.options) == 1
    return escalation.options[0]


def as_recorded(wanted: Wanted, step: int = 1) -> Recovery:
    return Recovery(
        "ns", "job", "uid", 1, step, wanted.kind, wanted.cause, wanted.scope, wanted.how, list(wanted.ranks),
        list(wanted.faulty), wanted.since_ms, wanted.until_ms, retries_left=wanted.retries_left,
        saves=wanted.saves,
    )  # fmt: skip


def deleted(wanted: Wanted, at_ms: int = START, **fields: Any) -> Progress:  # noqa: ANN401  # a builder
    """The pods of a step are gone, and new ones wait without a place."""
    gone = set(wanted.ranks)
    return Progress(as_recorded(wanted), (), gone, (), at_ms, at_ms, dict.fromkeys(gone, at_ms))._replace(**fields)


class Story:
    """Steps of one attempt in turn, without any place."""

    def __init__(self, rules: FaultRules, shape: GangShape, settings: Settings = SETTINGS) -> None:
        self.rules, self.shape, self.settings = rules, shape, settings
        self.progress = Progress()
        self.at_ms = START

    def fault(self, *ranks: int) -> Wanted:
        wanted = found(self.rules, broken(*ranks), self.shape, self.progress, self.settings, self.at_ms).options[-1]
        self._follow(wanted)
        return wanted

    def _follow(self, wanted: Wanted) -> None:
        """Its pods are gone at once and wait for places."""
        gone = set(self.progress.unplaced) | set(wanted.ranks)
        step = (self.progress.last.step if self.progress.last else 0) + 1
        at_ms = self.at_ms
        self.progress = self.progress._replace(
            last=as_recorded(wanted, step),
            unplaced=gone,
            waiting=dict.fromkeys(gone, at_ms),
            step_ms=at_ms,
            freed_ms=at_ms,
        )

    def after(self, wait_ms: int) -> list[Wanted]:
        """Steps that delete pods, that are due so long after the newest step."""
        escalation = found(self.rules, [], self.shape, self.progress, self.settings, self.at_ms + wait_ms)
        return [one for one in escalation.options if one.how != "place"]

    def grown(self, wait_ms: int) -> Wanted:
        """The step that becomes due exactly after a wait."""
        assert self.after(wait_ms - 1) == []
        self.at_ms += wait_ms
        wanted = self.after(0)[-1]
        self._follow(wanted)
        return wanted

    def ends(self) -> bool:
        return self.after(10_000_000) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("label", "how"),
    [("grace", "grace"), ("force", "force"), ("external-grace", "mark"), ("external-force", "mark"), ("off", "")],
)
def test_each_row_of_4_x_grace_force_external_off(kind: PodFaultKind, label: str, how: str) -> None:
    rules = labelled({"fault-scheduling": label, "fault-retry-times": "3", "subHealthyStrategy": "graceExit"})
    escalation = found(rules, broken(3, kind=kind))
    if not how:
        assert escalation == NOTHING
        return
    wanted = only(escalation)
    expected = "grace" if kind is PodFaultKind.SUB_HEALTH and how == "force" else how
    assert (wanted.how, wanted.kind, wanted.faulty) == (expected, kind.value, (3,))
    assert wanted.ranks == ((3,) if how == "mark" else tuple(range(8)))
    assert wanted.until_ms == (START + 900_000 if expected == "grace" else 0)
    assert wanted.cause == "pod of rank 3 on n3: it broke"


@pytest.mark.parametrize(("strategy", "how"), [("graceExit", "grace"), ("forceExit", "force"), ("hotSwitch", "force")])
@pytest.mark.parametrize("label", ["grace", "force"])
def test_sub_health_leaves_by_its_strategy(strategy: str, how: str, label: str) -> None:
    rules = labelled({"fault-scheduling": label, "subHealthyStrategy": strategy})
    assert only(found(rules, broken(1, kind=PodFaultKind.SUB_HEALTH))).how == how
    both = [*broken(1, kind=PodFaultKind.SUB_HEALTH), *broken(2)]
    assert only(found(rules, both)).how == label, "another fault of the job: the label counts"


def test_201_pods() -> None:
    wanted = only(found(labelled(), broken(*range(5, 206)), GangShape(400)))
    assert (len(wanted.ranks), len(wanted.faulty)) == (400, 201)
    assert wanted.cause == "pod of rank 5 on n5: it broke, and 200 more"
    wanted = only(found(labelled(PODS_FIRST), broken(*range(5, 206)), GangShape(400)))
    assert wanted.ranks == tuple(range(5, 206))


def test_grace_deadline() -> None:
    settings = msgspec.structs.replace(SETTINGS, grace_over_ms=2_000)
    assert only(found(labelled(), broken(1), settings=settings)).until_ms == START + 2_000
    first = only(found(labelled(PODS_FIRST), broken(1), settings=settings))
    later = only(found(labelled(PODS_FIRST), broken(2), progress=deleted(first), settings=settings, at_ms=START + 500))
    assert (later.since_ms, later.until_ms) == (START, START + 2_500)


def test_retry_counter_2_to_0() -> None:
    rules = labelled({**GRACE, "fault-retry-times": "2"})
    failed = broken(3, kind=PodFaultKind.POD_FAILED)
    assert only(found(rules, failed)).retries_left == 1
    assert only(found(rules, failed, progress=Progress(retries_left=1))).retries_left == 0
    assert found(rules, failed, progress=Progress(retries_left=0)) == NOTHING
    assert only(found(rules, broken(3), progress=Progress(retries_left=0))).retries_left == -1, "a chip does not count"
    both = [*failed, *broken(4)]
    wanted = only(found(rules, both, progress=Progress(retries_left=0)))
    assert (wanted.faulty, wanted.kind) == ((4,), "CardUnhealthy")


@pytest.mark.parametrize("has_master", [True, False])
def test_rank_0_with_and_without_worker_label(has_master: bool) -> None:  # noqa: FBT001  # a parameter of the test
    faults = broken(0, has_master=has_master)
    shape = PLAIN._replace(has_master=has_master)
    wanted = only(found(labelled(PODS_FIRST), faults, shape))
    assert wanted.ranks == (tuple(range(8)) if has_master else (0,))
    assert wanted.scope == ("job" if has_master else "pod")
    blocks = A3._replace(has_master=has_master)
    story = Story(labelled(PODS_FIRST), blocks)
    assert story.fault(1).ranks == (1,)
    grown = story.grown(6_000)
    assert grown.ranks == (tuple(range(8)) if has_master else (0, 1, 2, 3))


def test_escalation_at_each_step_for_plain() -> None:
    story = Story(labelled(PODS_FIRST), PLAIN)
    assert (story.fault(3).scope, story.progress.unplaced) == ("pod", {3})
    grown = story.grown(12_000)
    assert (grown.scope, grown.ranks, grown.faulty, grown.how) == ("job", tuple(range(8)), (3,), "grace")
    assert (grown.kind, grown.since_ms) == ("CardUnhealthy", START)
    assert grown.cause == "the new pod of rank 3 found no place for 12 s"


def test_escalation_at_each_step_for_a3_superpods() -> None:
    story = Story(labelled(PODS_FIRST), A3)
    assert story.fault(5).ranks == (5,)
    grown = story.grown(6_000)
    assert (grown.scope, grown.ranks) == ("superpod", (4, 5, 6, 7))
    assert grown.sought == grown.ranks
    assert story.grown(6_000).scope == "job"


def test_escalation_at_each_step_for_950_with_ra_block_1() -> None:
    story = Story(labelled(PODS_FIRST), RA_1)
    story.fault(5)
    assert (story.grown(6_000).scope, story.grown(6_000).scope) == ("superpod", "job")


def test_escalation_at_each_step_for_950_with_ra_block_4() -> None:
    story = Story(labelled(PODS_FIRST), RA_4)
    assert story.fault(9).ranks == (9,)
    grown = story.grown(3_000)
    assert (grown.scope, grown.ranks) == ("rank-block", (8, 9, 10, 11))
    grown = story.grown(3_000)
    assert (grown.scope, grown.ranks) == ("superpod", tuple(range(8, 16)))
    assert story.grown(6_000).ranks == tuple(range(16))


def test_rank_0_in_the_block_that_goes_takes_all() -> None:
    story = Story(labelled(PODS_FIRST), RA_4)
    story.fault(3)
    assert (story.grown(3_000).scope, story.ends()) == ("job", False)


def test_escalation_at_each_step_for_three_levels() -> None:
    story = Story(labelled(PODS_FIRST), LEVELS)
    assert story.fault(13).ranks == (13,)
    grown = story.grown(6_000)
    assert (grown.scope, grown.ranks) == ("level", (12, 13))
    assert story.grown(6_000).scope == "job"


@pytest.mark.parametrize("annotations", [{"huawei.com/recover_policy_path": "pod"}, {}])
def test_limit_pod(annotations: dict[str, str]) -> None:
    labels = GRACE if annotations else {**GRACE, "ome.io/inferenceservice": "one"}
    for extra, shape in itertools.product(({}, {"pod-rescheduling": "on"}), (PLAIN, A3, RA_4, LEVELS)):
        story = Story(labelled({**labels, **extra}, annotations), shape)
        assert story.fault(0).ranks == (0,), "not even the master takes others with it"
        assert story.ends()


def test_limit_job_is_the_same_as_none() -> None:
    limits = [labelled(PODS_FIRST, {"huawei.com/recover_policy_path": path}) for path in ("job", "")]
    one, other = (Story(rules, A3) for rules in limits)
    assert [one.fault(5), one.grown(6_000), one.grown(6_000)] == [
        other.fault(5), other.grown(6_000), other.grown(6_000)
    ]  # fmt: skip


@pytest.mark.parametrize("by_pods", [True, False])
@pytest.mark.parametrize("shape", [PLAIN, A3, LEVELS])
def test_process_recover_on_then_pause_then_on(shape: GangShape, by_pods: bool) -> None:  # noqa: FBT001  # a parameter
    labels = {**GRACE, **({"pod-rescheduling": "on"} if by_pods else {}), "process-recover-enable": "on"}
    story = Story(labelled(labels), shape)
    assert story.fault(3).ranks == (3,)
    assert story.ends(), "no other pod is touched while it is on"
    story.at_ms += 270_000
    story.rules = labelled({**labels, "process-recover-enable": "pause"})
    story.progress = story.progress._replace(paused_ms=story.at_ms)
    if not by_pods:
        assert [one.scope for one in story.after(0)] == ["job"], "job level at once"
        return
    first = 12_000 if shape is PLAIN else 6_000
    assert (story.after(first - 1), len(story.after(first))) == ([], 1), "the clock begins with the pause"
    story.rules = labelled(labels)
    assert story.ends(), "it is on again"


def test_process_recover_on_for_950_goes_to_the_rank_block_and_no_further() -> None:
    labels = {**PODS_FIRST, "process-recover-enable": "on"}
    story = Story(labelled(labels), RA_4)
    assert story.fault(9).ranks == (9,)
    assert story.grown(3_000).ranks == (8, 9, 10, 11)
    assert story.ends()
    story.at_ms += 1_000_000
    story.rules = labelled({**labels, "process-recover-enable": "pause"})
    story.progress = story.progress._replace(paused_ms=story.at_ms)
    assert story.grown(6_000).scope == "superpod", "the count began anew"
    assert story.grown(6_000).scope == "job"


def test_hot_switch_old_pod_is_deleted_only_after_both_marks() -> None:
    rules = labelled({**GRACE, "subHealthyStrategy": "hotSwitch"})
    label, mark, backup = {"fault-type": "SubHealth"}, {"needVolcanoOpe": "delete"}, {"backupNewPodName": "new"}
    for marks in ({}, label, label | backup, mark, mark | backup):
        pods = [PodView(rank, "n", 1, PodPhase.RUNNING, 0, marks if rank == 5 else {}) for rank in range(8)]
        seen = diagnose(pods, {"n": NodeView()}, rules, size=8)
        assert escalate(seen, PLAIN, Progress(), SETTINGS, at_ms=START, seen_ms=0) == NOTHING
    marks = label | mark | backup
    pods = [PodView(rank, "n", 1, PodPhase.RUNNING, 0, marks if rank == 5 else {}) for rank in range(8)]
    wanted = only(
        escalate(diagnose(pods, {"n": NodeView()}, rules, size=8), PLAIN, Progress(), SETTINGS, at_ms=START, seen_ms=0)
    )
    assert (wanted.ranks, wanted.how, wanted.sought) == ((5,), "force", ()), "its backup pod has its place"
    lost = found(rules, [], progress=deleted(wanted), at_ms=START)
    assert lost.options[0].how == "place", "one whose backup pod is gone gets another place"


def test_hot_switch_late_backup_and_failure_mark_on_rank_0() -> None:
    rules = labelled({**GRACE, "subHealthyStrategy": "hotSwitch"})
    late = broken(5, kind=PodFaultKind.SUB_HEALTH)
    assert len(only(found(rules, late)).ranks) == 8, "without a backup pod it is an ordinary deletion"
    failure = broken(0, kind=PodFaultKind.SUB_HEALTH)
    wanted = only(found(labelled({**PODS_FIRST, "subHealthyStrategy": "hotSwitch"}), failure))
    assert (len(wanted.ranks), wanted.how) == (8, "force")


def test_elastic_pending_replacement_for_an_hour_then_placed() -> None:
    labels = {**GRACE, "process-recover-enable": "on"}
    story = Story(labelled(labels), PLAIN)
    story.fault(3)
    later = found(story.rules, [], PLAIN, story.progress, at_ms=START + 3_600_000)
    assert (only(later).how, only(later).ranks, only(later).needs_place, later.again_ms) == ("place", (3,), True, 0)


@pytest.mark.parametrize("value", ["grace|force", "grace|off", "maybe"])
def test_label_grace_or_force(value: str) -> None:
    rules = labelled({"fault-scheduling": value, "pod-rescheduling": "on"})
    assert found(rules, broken(3)) == NOTHING
    assert [finding.key for finding in rules.findings] == ["fault-scheduling"]


def test_second_chip_of_the_same_job_during_recovery() -> None:
    rules = labelled(PODS_FIRST)
    first = only(found(rules, broken(3)))
    wanted = only(found(rules, broken(6), progress=deleted(first), at_ms=START + 1_000))
    assert (wanted.ranks, wanted.faulty, wanted.since_ms) == ((3, 6), (6,), START)
    assert wanted.until_ms == START + 1_000 + 900_000
    over = Progress(as_recorded(first), step_ms=START, freed_ms=START)
    wanted = only(found(rules, broken(6), progress=over, at_ms=START + 50_000))
    assert (wanted.ranks, wanted.since_ms) == ((6,), START + 50_000), "the first recovery is over"


@pytest.mark.parametrize(
    ("labels", "others", "saves"),
    [
        ({**PODS_FIRST, "subHealthyStrategy": "graceExit"}, (), True),
        ({"fault-scheduling": "force", "pod-rescheduling": "on", "subHealthyStrategy": "graceExit"}, (), True),
        ({**PODS_FIRST, "subHealthyStrategy": "forceExit"}, (), False),
        ({**PODS_FIRST, "subHealthyStrategy": "graceExit"}, (PodFaultKind.CARD_UNHEALTHY,), False),
        ({**PODS_FIRST, "subHealthyStrategy": "graceExit", "process-recover-enable": "on"}, (), False),
        ({**PODS_FIRST, "subHealthyStrategy": "graceExit", "process-recover-enable": "pause"}, (), True),
    ],
)
def test_agents_save_before_a_graceful_exit_for_sub_health_alone(
    labels: dict[str, str],
    others: tuple[PodFaultKind, ...],
    saves: bool,  # noqa: FBT001
) -> None:
    rules = labelled(labels)
    faults = [*broken(2, kind=PodFaultKind.SUB_HEALTH), *(one for kind in others for one in broken(3, kind=kind))]
    first = only(found(rules, faults))
    assert first.saves is saves
    after = found(rules, [], progress=deleted(first), at_ms=START + 60_000)
    grown = [one.saves for one in after.options if one.how != "place"]
    assert grown == ([] if rules.process_recovery == "on" else [saves]), "what leaves with them later saves likewise"


def test_second_fault_of_an_escalated_job_keeps_the_scope() -> None:
    story = Story(labelled(PODS_FIRST), A3._replace(has_master=False))
    story.fault(5)
    story.grown(6_000)
    wanted = story.fault(2)
    assert (wanted.scope, wanted.ranks) == ("job", tuple(range(8))), "both blocks are all of it"


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [({"elastic-scheduling": "on"}, {}), ({}, {"ProcessRecoverStrategy": ""}), ({}, {"ProcessRecoverStrategy": "x"})],
)
def test_another_component_owns_the_faults(labels: dict[str, str], annotations: dict[str, str]) -> None:
    rules = labelled({**PODS_FIRST, **labels}, annotations)
    assert found(rules, broken(3)) == NOTHING
    assert found(rules, [], progress=Progress(unplaced={3}), at_ms=START + 100_000) == NOTHING


def test_faulty_pods_are_marked_once() -> None:
    rules = labelled({"fault-scheduling": "external-force"})
    first = only(found(rules, broken(2, 5)))
    assert (first.ranks, first.faulty, first.scope, first.until_ms) == ((2, 5), (2, 5), "pod", 0)
    marked = Progress(as_recorded(first))
    assert found(rules, broken(2), progress=marked) == NOTHING
    assert only(found(rules, broken(2, 6), progress=marked)).ranks == (2, 6)


def test_the_clock_runs_only_while_a_new_pod_waits() -> None:
    rules = labelled(PODS_FIRST)
    gone = deleted(only(found(rules, broken(3))))
    late = START + 100_000
    for stands in (gone._replace(waiting={}), gone._replace(waiting={4: START}), gone._replace(leaving={6})):
        escalation = found(rules, [], progress=stands, at_ms=late)
        assert ([one.how for one in escalation.options], escalation.again_ms) == (["place"], 0)
    came = gone._replace(waiting={3: late})
    assert found(rules, [], progress=came, at_ms=late).again_ms == late + 12_000
    assert [one.how for one in found(rules, [], progress=came, at_ms=late + 12_000).options] == ["place", "grace"]
    assert [one.how for one in found(rules, [], progress=gone._replace(waiting={}), settings=PARITY, at_ms=late).options] == [
        "place", "grace"
    ], "under parity from the deletion on"  # fmt: skip


def test_the_clock_begins_with_the_first_new_pod_that_has_no_place_and_not_anew_with_others() -> None:
    rules = labelled(PODS_FIRST)
    gone = deleted(only(found(rules, broken(3, 5))), freed_ms=START + 100)
    first = gone._replace(waiting={3: START + 1_000})
    assert found(rules, [], progress=first, at_ms=START + 2_000).again_ms == START + 13_000
    both = gone._replace(waiting={3: START + 1_000, 5: START + 9_000})
    assert found(rules, [], progress=both, at_ms=START + 9_000).again_ms == START + 13_000
    other = gone._replace(waiting={3: START + 1_000, 6: START - 60_000})
    assert found(rules, [], progress=other, at_ms=START + 9_000).again_ms == START + 13_000, "6 has a place"
    early = gone._replace(waiting={3: START - 60_000})
    assert found(rules, [], progress=early, at_ms=START + 200).again_ms == START + 12_100, "it had a place before"


def test_the_times_of_the_steps_are_settings() -> None:
    settings = msgspec.structs.replace(
        SETTINGS, escalate_block_ms=1_000, escalate_superpod_ms=5_000, escalate_job_ms=7_000
    )
    story = Story(labelled(PODS_FIRST), RA_4, settings)
    story.fault(9)
    assert [story.grown(1_000).scope, story.grown(4_000).scope, story.grown(2_000).scope] == [
        "rank-block", "superpod", "job"
    ]  # fmt: skip


def test_plan_before_delete_whole_job_waits_for_places_however_long() -> None:
    for at_ms in (START, START + 60_000, START + 3_600_000):
        escalation = found(labelled(), broken(3), settings=PLANNED, at_ms=at_ms)
        wanted = only(escalation)
        assert (wanted.scope, wanted.needs_place, escalation.again_ms) == ("job", True, 0)
        assert wanted.sought == wanted.ranks == tuple(range(8)), "each rank would need a place"


def test_plan_before_delete_whole_job_leaves_after_fault_wait_ms_if_no_pod_of_it_is_healthy() -> None:
    early = found(labelled(), broken(*range(8)), settings=PLANNED, at_ms=START + 59_999)
    assert (only(early).needs_place, early.again_ms) == (True, START + 60_000)
    due = found(labelled(), broken(*range(8)), settings=PLANNED, at_ms=START + 60_000)
    assert [one.needs_place for one in due.options] == [True, False]
    assert (due.options[1].ranks, due.options[1].sought, due.again_ms) == (tuple(range(8)), (), 0)


def test_plan_before_delete_pods_around_a_further_fault_wait_for_places_too() -> None:
    """Ranks 4 to 7 left with their logical SuperPoD; now rank 1 of the other one breaks."""
    left = Recovery("ns", "job", "uid", 1, 1, "CardUnhealthy", "", "superpod", "grace", [4, 5, 6, 7], [5], START)
    progress = Progress(left, unbound={4, 5, 6, 7}, step_ms=START, freed_ms=START)
    wanted = only(found(labelled(PODS_FIRST), broken(1), A3, progress, PLANNED))
    assert (wanted.scope, wanted.ranks, wanted.needs_place) == ("pod", (1,), False)


def test_plan_before_delete_faulty_pods_leave_without_a_place_if_they_cannot_run() -> None:
    rules = labelled({**PODS_FIRST, "subHealthyStrategy": "graceExit"})
    assert not only(found(rules, broken(3), settings=PLANNED)).needs_place
    ill = found(rules, broken(3, kind=PodFaultKind.SUB_HEALTH), settings=PLANNED)
    assert (only(ill).needs_place, ill.again_ms) == (True, START + 60_000), "it runs on where it is"


def test_plan_before_delete_healthy_pods_leave_for_places_only() -> None:
    story = Story(labelled(PODS_FIRST), A3, PLANNED)
    story.fault(5)
    at_block = story.after(6_000)
    assert [(one.scope, one.needs_place) for one in at_block] == [("superpod", True)]
    assert [(one.scope, one.needs_place) for one in story.after(12_000)] == [("superpod", True), ("job", True)]
    assert story.after(3_600_000)[-1].sought == tuple(range(A3.pods)), "each rank would need a place"
    again = found(story.rules, [], A3, story.progress, PLANNED, START + 6_000).again_ms
    assert again == START + 12_000


def test_plan_before_delete_is_off_under_parity() -> None:
    both = msgspec.structs.replace(PLANNED, reference_parity=True)
    assert found(labelled(), broken(3), settings=both) == found(labelled(), broken(3), settings=SETTINGS)


def test_ranks_that_end_at_a_stage() -> None:
    assert ranks_given_up((2, 4), 8, [5], 0) == [5]
    assert ranks_given_up((2, 4), 8, [5, 0], 1) == [0, 1, 4, 5]
    assert ranks_given_up((2, 4), 8, [5], 2) == [4, 5, 6, 7]
    assert ranks_given_up((2, 4), 8, [5], 9) == list(range(8))
