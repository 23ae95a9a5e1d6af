"""What can be said of a job request without the cluster."""

import msgspec
import pytest

from berth.core.requests.job_validation import ValidJob, form_of, shapes_of, validate
from berth.core.topologies.switches.demand import leaf_demand
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.placement import Share
from berth.schemas.refusal import Refusal

DEFAULTS = Settings()
PARITY = Settings(reference_parity=True)
POLICY = "huawei.com/schedule_policy"
SHARE = "huawei.com/scheduler.softShareDev."


def a_job(
    *tasks: Task | tuple[int, int],
    policy: str | None = None,
    resource: str = "huawei.com/Ascend910",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    node_selector: dict[str, str] | None = None,
    min_available: int = 0,
) -> JobRequest:
    """A job of tasks, given as such or as (pods, chips a pod)."""
    return JobRequest(
        namespace="ns",
        name="job",
        uid="u",
        resource=resource,
        tasks=[task if isinstance(task, Task) else Task(f"task{at}", *task) for at, task in enumerate(tasks)],
        labels=labels or {},
        annotations=({} if policy is None else {POLICY: policy}) | (annotations or {}),
        node_selector=node_selector or {},
        min_available=min_available,
    )


def accepted(job: JobRequest, settings: Settings = DEFAULTS) -> ValidJob:
    verdict = validate(job, settings)
    assert isinstance(verdict, ValidJob), verdict
    return verdict


def refused(job: JobRequest, settings: Settings = DEFAULTS) -> Refusal:
    verdict = validate(job, settings)
    assert isinstance(verdict, Refusal), verdict
    return verdict


def test_a_sound_job_says_what_follows_from_it() -> None:
    valid = accepted(a_job((3, 8), labels={"subHealthyStrategy": "graceExit"}))
    assert valid == ValidJob(
        form="module910x8",
        because="the job has no node selector accelerator-type",
        distributed=True,
        chip_pods=3,
        task_chips=(8,),
        sub_health="graceExit",
    )
    form = form_of(valid)
    assert form is not None
    assert form.name == "module910x8"


@pytest.mark.parametrize(
    ("job", "code", "field", "value"),
    [
        (a_job(), "invalid-request", "tasks", "[]"),
        (a_job((1, 1), (0, 1)), "invalid-request", "tasks[1].replicas", "0"),
        (a_job((-2, 1)), "invalid-request", "tasks[0].replicas", "-2"),
        (a_job((1, -1)), "invalid-request", "tasks[0].chips", "-1"),
        (a_job((1, 65)), "invalid-request", "tasks[0].chips", "65"),
        (a_job((2, 8), min_available=-1), "invalid-request", "min_available", "-1"),
        (a_job((2, 8), min_available=3), "not-enough-pods", "min_available", "3"),
        (a_job((1, 8), annotations={"huawei.com/schedule_minAvailable": "one"}), "invalid-argument", "annotations.huawei.com/schedule_minAvailable", "one"),
        (a_job((1, 8), annotations={"huawei.com/schedule_minAvailable": ""}), "invalid-argument", "annotations.huawei.com/schedule_minAvailable", ""),
        (a_job((1, 8), annotations={"huawei.com/schedule_minAvailable": str(1 << 63)}), "invalid-argument", "annotations.huawei.com/schedule_minAvailable", str(1 << 63)),
        (a_job((1, 1), resource="huawei.com/Ascend910-4c"), "unsupported-vnpu", "resource", "huawei.com/Ascend910-4c"),
        (a_job((1, 1), resource=""), "unsupported-policy", "resource", ""),
        (a_job((1, 8), policy="multilevel"), "invalid-argument", "annotations.huawei.com/affinity-config", ""),
        (a_job((4, 8), policy="multilevel", annotations={"huawei.com/affinity-config": "level1=3"}), "invalid-argument", "annotations.huawei.com/affinity-config.level1", "3"),
        (a_job((1, 8), annotations={"sp-block": "16"}), "invalid-request", "annotations.sp-block", "16"),
    ],
)  # fmt: skip
def test_refusals_name_field_and_value(job: JobRequest, code: str, field: str, value: str) -> None:
    for settings in (DEFAULTS, PARITY):
        refusal = refused(job, settings)
        assert (refusal.code, refusal.field, refusal.value) == (code, field, value)
        assert refusal.expected


def test_a_part_of_a_gang_is_judged_as_a_part() -> None:
    part = accepted(a_job((1, 8), annotations={"berth/gang-pods": "4"}))
    assert (part.distributed, part.chip_pods) == (True, 4)
    assert shapes_of(part, a_job((1, 8)))[0].gang_pods == 4
    assert not accepted(a_job((1, 8), annotations={"berth/gang-pods": "1"})).distributed
    assert accepted(a_job((1, 1), policy="chip2-node16")).form
    assert refused(a_job((1, 1), policy="chip2-node16", annotations={"berth/gang-pods": "2"})).value == "1 chip in all"


@pytest.mark.parametrize("pods", ["0", "-3", "many", "99999999999"])
def test_the_size_of_the_whole_gang_is_a_number(pods: str) -> None:
    refusal = refused(a_job((1, 8), annotations={"berth/gang-pods": pods}))
    assert (refusal.field, refusal.value) == ("annotations.berth/gang-pods", pods)


def test_the_order_of_checks_is_that_of_the_reference_page() -> None:
    both = a_job((1, 3), min_available=2, annotations={"huawei.com/schedule_minAvailable": "x"})
    assert refused(both).code == "not-enough-pods"
    assert refused(a_job((1, 3), annotations={"huawei.com/schedule_minAvailable": "x"})).code == "invalid-argument"
    assert refused(a_job((1, 3))).code == "invalid-request"


@pytest.mark.parametrize(
    ("policy", "good", "bad"),
    [
        (None, (1, 2, 4, 8), (3, 5, 6, 7, 9)),
        ("chip4-node4", (1, 2, 4), (3, 5)),
        ("chip1-node2", (1, 2, 8), (9,)),
        ("chip8-node8", (1, 3, 5, 7, 8), (9, 16)),
        ("chip8-node16", (1, 8, 10, 12, 14, 16), (9, 11, 13, 15, 17)),
        ("chip1-node16", (1, 16), (17,)),
        ("chip2-node16", (1, 2, 16), (3, 15, 17, 18)),
        ("chip2-node8", (1, 2, 16), (3, 18)),
        ("chip4-node8", (1, 3, 5, 8), (9,)),
        ("chip4-node16", (1, 3, 16), (17,)),
    ],
)
def test_sizes_of_a_single_pod(policy: str | None, good: tuple[int, ...], bad: tuple[int, ...]) -> None:
    for chips in good:
        assert accepted(a_job((1, chips), policy=policy)).task_chips == (chips,)
    for chips in bad:
        refusal = refused(a_job((1, chips), policy=policy))
        assert refusal.code == "invalid-request"
        assert refusal.form
        assert refusal.form_because


def test_under_parity_a_task_without_chips_beside_others_is_refused_by_the_default_check() -> None:
    assert refused(a_job((1, 8), (1, 0)), PARITY).field == "tasks[1].chips"


def test_a3_counts_the_job_and_each_pod() -> None:
    assert accepted(a_job((1, 1), policy="chip2-node16")).distributed is False
    assert refused(a_job((2, 1), policy="chip2-node16")).field == "tasks[0].chips"
    assert refused(a_job((1, 1), (1, 2), policy="chip2-node16")).field == "tasks"
    assert refused(a_job((1, 2), (2, 3), policy="chip2-node16")).field == "tasks[1].chips"
    assert accepted(a_job((1, 2), (3, 16), policy="chip2-node16")).chip_pods == 4


def test_under_parity_a3_pods_without_chips_need_a_reason() -> None:
    worker = Task("worker", 2, 8)
    assert refused(a_job(worker, Task("master", 1, 0), policy="chip2-node16"), PARITY).field == "tasks[1].chips"
    assert accepted(a_job(worker, Task("scheduler", 1, 0), policy="chip2-node16"), PARITY).chip_pods == 2
    skip = {"huawei.com/skip-ascend-plugin": "enabled"}
    job = a_job(worker, Task("master", 1, 0), policy="chip2-node16", annotations=skip)
    assert accepted(job, PARITY).chip_pods == 2
    single = accepted(a_job(Task("worker", 1, 1), Task("scheduler", 1, 0), policy="chip2-node16"), PARITY)
    assert single.distributed is False


def test_meshes_are_checked_by_the_average_only() -> None:
    assert accepted(a_job((1, 12), (1, 5), policy="chip4-node8")).task_chips == (12, 5)
    assert refused(a_job((1, 12), (1, 6), policy="chip4-node8")).value == "9 chips a pod on average"
    assert accepted(a_job((1, 8), (1, 0), policy="chip4-node8")).chip_pods == 1


@pytest.mark.parametrize("strategy", ["chip", "card"])
def test_duo_with_label_distributed_has_one_pod(strategy: str) -> None:
    labels = {"duo": "true", "distributed": "true", "npu-310-strategy": strategy}
    assert accepted(a_job((1, 2), resource="huawei.com/Ascend310P", labels=labels)).distributed is False
    assert refused(a_job((2, 2), resource="huawei.com/Ascend310P", labels=labels)).expected.startswith("1 pod")
    free = labels | {"distributed": "false"}
    assert accepted(a_job((2, 2), resource="huawei.com/Ascend310P", labels=free)).distributed is True


def test_card_mode_accepts_more_than_a_card_holds() -> None:
    assert (
        accepted(a_job((1, 64), resource="huawei.com/Ascend310", labels={"npu-310-strategy": "card"})).form
        == "310-card"
    )


def test_strict_job_shape_of_910a_names_its_setting() -> None:
    for job in (a_job((2, 4)), a_job((1, 1), (1, 2)), a_job((4, 4)), a_job((1, 8), (2, 4))):
        refusal = refused(job)
        assert refusal.code == "job-shape"
        assert "strict_job_shape" in refusal.expected
        assert accepted(job, PARITY).distributed is True
        assert accepted(job, Settings(strict_job_shape=False)).distributed is True
    assert accepted(a_job((1, 4))).chip_pods == 1
    assert accepted(a_job((2, 8))).chip_pods == 2
    assert accepted(a_job((2, 4), policy="chip8-node8")).chip_pods == 2


def test_a_forbidden_size_is_said_before_the_shape_of_the_job() -> None:
    assert refused(a_job((2, 3))).code == "invalid-request"


def test_jobs_without_chips_are_plain_pods_whatever_their_resource() -> None:
    for resource in ("", "huawei.com/Ascend910", "huawei.com/npu-core"):
        valid = accepted(a_job((2, 0), resource=resource))
        assert (valid.form, valid.chip_pods, valid.distributed) == ("", 0, False)
        assert form_of(valid) is None


def test_an_unknown_label_value_is_refused_and_counts_as_absent_under_parity() -> None:
    job = a_job((1, 8), labels={"subHealthyStrategy": "stranger"})
    found = validate(job, DEFAULTS)
    assert isinstance(found, Refusal)
    assert (found.code, found.field, found.value) == ("invalid-argument", "labels.subHealthyStrategy", "stranger")
    assert found.expected == "one of ignore, graceExit, forceExit, hotSwitch (setting strict_label_values)"
    assert accepted(job, PARITY).sub_health == "ignore"
    assert accepted(job, Settings(strict_label_values=False)).sub_health == "ignore"
    assert accepted(a_job((1, 8), labels={"subHealthyStrategy": "hotSwitch"})).sub_health == "hotSwitch"


@pytest.mark.parametrize(
    ("labels", "annotations", "field", "value", "expected"),
    [
        (
            {"fault-scheduling": "grace|force"},
            {},
            "labels.fault-scheduling",
            "grace|force",
            "one of grace, force, off, external-grace, external-force, the same for all pods and the PodGroup",
        ),
        ({"fault-retry-times": "101"}, {}, "labels.fault-retry-times", "101", "a whole number from 0 to 100"),
        (
            {"pod-rescheduling": "on|off"},
            {},
            "labels.pod-rescheduling",
            "on|off",
            "one value, the same for all pods and the PodGroup",
        ),
        (
            {},
            {"huawei.com/recover_policy_path": "node"},
            "annotations.huawei.com/recover_policy_path",
            "node",
            "one of pod, job",
        ),
    ],
)
def test_labels_for_faults_without_a_meaning_are_refused(
    labels: dict[str, str], annotations: dict[str, str], field: str, value: str, expected: str
) -> None:
    job = a_job((1, 8), labels=labels, annotations=annotations)
    found = validate(job, Settings())
    assert isinstance(found, Refusal)
    assert (found.code, found.field, found.value) == ("invalid-argument", field, value)
    assert found.expected == f"{expected} (setting strict_label_values)"
    for lenient in (Settings(strict_label_values=False), Settings(reference_parity=True)):
        accepted(job, lenient)
    accepted(a_job((1, 8), labels={"fault-scheduling": "grace", "fault-retry-times": "3"}), Settings())


@pytest.mark.parametrize("settings", [DEFAULTS, PARITY, Settings(strict_label_values=False)])
def test_an_unknown_value_of_switch_affinity_is_refused_under_all_settings(settings: Settings) -> None:
    for value in ("large", "", "Null"):
        found = validate(a_job((1, 8), labels={"tor-affinity": value}), settings)
        assert isinstance(found, Refusal)
        assert (found.code, found.field, found.value) == ("invalid-argument", "labels.tor-affinity", value)
        assert found.expected == "one of null, normal-schema, large-model-schema"


def test_switches_play_no_part_without_the_label_or_without_chips() -> None:
    assert accepted(a_job((4, 8))).demand is None
    assert accepted(a_job((4, 8), labels={"tor-affinity": "null"})).demand is None
    assert accepted(a_job((4, 0), labels={"tor-affinity": "normal-schema"})).demand is None
    assert accepted(a_job((4, 8), labels={"tor-affinity": "normal-schema"})).demand == leaf_demand(
        "normal-schema", gang_pods=2
    )


@pytest.mark.parametrize(("pods", "needs"), [(1, False), (2, True)])
def test_several_pods_below_switches_need_chips_that_the_network_reaches(pods: int, *, needs: bool) -> None:
    demand = accepted(a_job((pods, 8), labels={"tor-affinity": "normal-schema"})).demand
    assert demand is not None
    assert demand.uses_network == needs


def test_shapes_say_with_which_switch_affinity_chips_are_asked() -> None:
    job = a_job((4, 8), labels={"tor-affinity": "large-model-schema"})
    assert [shape.demand for shape in shapes_of(accepted(job), job)] == [accepted(job).demand]


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"min_available": 3}, "min_available", "3"),
        (
            {"annotations": {"huawei.com/schedule_minAvailable": "3"}},
            "annotations.huawei.com/schedule_minAvailable",
            "3",
        ),
    ],
)
def test_with_switch_affinity_all_pods_start_together(changes: dict[str, object], field: str, value: str) -> None:
    labels = {"tor-affinity": "normal-schema"}
    found = validate(msgspec.structs.replace(a_job((4, 8), labels=labels), **changes), DEFAULTS)
    assert isinstance(found, Refusal)
    assert (found.code, found.field, found.value) == ("invalid-request", field, value)
    assert "4, the pods of the job" in found.expected
    assert not isinstance(validate(msgspec.structs.replace(a_job((4, 8)), **changes), DEFAULTS), Refusal)
    whole = {"min_available": 4, "annotations": {"huawei.com/schedule_minAvailable": "4"}}
    assert not isinstance(validate(msgspec.structs.replace(a_job((4, 8), labels=labels), **whole), DEFAULTS), Refusal)


def test_the_form_follows_from_what_the_tasks_with_chips_ask_alike() -> None:
    box = {"accelerator-type": "module-910b-16"}
    scheduler = Task("scheduler", 1, 0)
    mixed = a_job(scheduler, Task("worker", 2, 16, node_selector=box))
    assert refused(mixed, PARITY).form == "module910bx16"  # by the form's own check
    assert accepted(mixed).form == "module910bx16"
    assert accepted(a_job(Task("worker", 2, 16, node_selector=box))).form == "module910bx16"


def share_labels(aicore: str = "20", hbm: str = "1024", policy: str = "elastic") -> dict[str, str]:
    return {SHARE + "aicoreQuota": aicore, SHARE + "hbmQuota": hbm, SHARE + "policy": policy}


def test_soft_share_takes_its_quota_from_labels() -> None:
    valid = accepted(a_job((3, 1), policy="chip1-softShareDev", labels=share_labels()))
    assert valid.share == Share(20, 1024, "elastic")
    assert accepted(a_job((1, 1), labels=share_labels())).share is None


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("aicoreQuota", "0"), ("aicoreQuota", "101"), ("aicoreQuota", "x"), ("aicoreQuota", ""), ("aicoreQuota", "1.5"),
        ("aicoreQuota", " 5"), ("hbmQuota", "0"), ("hbmQuota", "-1"), ("hbmQuota", "1G"), ("policy", "weird"), ("policy", ""),
    ],
)  # fmt: skip
def test_soft_share_labels_are_mandatory_and_bounded(label: str, value: str) -> None:
    labels = share_labels() | {SHARE + label: value}
    for chosen in (labels, {key: text for key, text in labels.items() if key != SHARE + label}):
        refusal = refused(a_job((1, 1), policy="chip1-softShareDev", labels=chosen))
        assert (refusal.code, refusal.field) == ("invalid-request", f"labels.{SHARE}{label}")


def test_shapes_merge_selectors_and_equal_tasks_give_equal_shapes() -> None:
    one = Task("a", 2, 8, cpu_milli=500, node_selector={"zone": "z1", "disk": "ssd"})
    two = Task("b", 1, 8, cpu_milli=500, node_selector={"disk": "ssd", "zone": "z1"})
    job = a_job(one, two, node_selector={"accelerator-type": "module", "zone": "z0"})
    first, second = shapes_of(accepted(job), job)
    assert first == second
    assert first.selector == (("accelerator-type", "module"), ("disk", "ssd"), ("zone", "z1"))
    assert (first.form, first.chips, first.gang_pods, first.cpu_milli) == ("module910x8", 8, 3, 500)


def test_a_task_without_chips_gets_a_plain_shape() -> None:
    job = a_job(Task("worker", 2, 8), Task("scheduler", 1, 0), policy="chip2-node16")
    worker, scheduler = shapes_of(accepted(job), job)
    assert (worker.form, worker.gang_pods) == ("module910a3x16", 2)
    assert (scheduler.form, scheduler.resource, scheduler.chips, scheduler.gang_pods) == ("", "", 0, 0)


@pytest.mark.parametrize(
    ("job", "settings", "field", "value"),
    [
        (a_job((2, 8), policy="chip8-node8-ra64-sp", resource="huawei.com/npu", annotations={"sp-block": "16"}), Settings(super_pod_size=0), "settings.super_pod_size", "0"),
        (a_job((2, 8), policy="chip8-node8-ra64-sp", resource="huawei.com/npu", annotations={"sp-block": "x"}), DEFAULTS, "annotations.sp-block", "x"),
        (a_job((2, 8), policy="chip8-node8-ra64-sp", resource="huawei.com/npu", annotations={"sp-block": "16", "ra-block": "3"}), DEFAULTS, "annotations.ra-block", "3"),
        (a_job((3, 8), policy="chip8-node8-ra64-sp", resource="huawei.com/npu", annotations={"sp-block": "16"}), DEFAULTS, "tasks", "3"),
    ],
    ids=["size", "sp-block", "ra-block", "pods"],
)  # fmt: skip
def test_a_refusal_of_blocks_names_what_asks_for_them(
    job: JobRequest, settings: Settings, field: str, value: str
) -> None:
    refusal = refused(job, settings)
    assert (refusal.field, refusal.value) == (field, value)
