"""What labels and annotations say of preemption."""

import pytest

from berth.formats.manifests.preemption import Claims, preemption_of
from berth.formats.manifests.reader import parse_jobs
from berth.formats.yaml_tree import DocumentError
from berth.schemas.intake import Preemption
from tests.support.manifest_text import ascend, batch, berth, pod, volcano

PREEMPTABLE, COOLDOWN, NOTICE = "volcano.sh/preemptable", "volcano.sh/cooldown-time", "berth/preempt-notice-s"


def job(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> Preemption | None:
    """What a job says whose pods say nothing."""
    return preemption_of([Claims(labels, annotations)], [])


def pods(*annotations: dict[str, str]) -> Preemption | None:
    """What the pods of a job say that says nothing itself."""
    return preemption_of([Claims({}, {})], [Claims(None, each, f"pod p-{at}") for at, each in enumerate(annotations)])


def test_a_job_that_says_nothing_has_no_preemption() -> None:
    assert preemption_of([], []) is None
    assert job({"sp-block": "16"}, {"app": "a"}) is None


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_a_job_that_says_yes_declares_it(text: str) -> None:
    assert job({PREEMPTABLE: text}) == Preemption(is_declared=True)


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_a_job_that_says_no_is_not_preemptable(text: str) -> None:
    assert job({PREEMPTABLE: text}) == Preemption(preemptable=False)


@pytest.mark.parametrize("text", ["maybe", "yes", "", "tRUE", " true", "x" * 5_000])
def test_a_value_that_cannot_be_read_says_no_and_is_named(text: str) -> None:
    found = job({PREEMPTABLE: text})
    assert found is not None
    assert (found.preemptable, found.is_declared) == (False, False)
    (why,) = found.ignored
    assert why.startswith(f"annotation {PREEMPTABLE} is '{text[:100]}")
    assert why.endswith("expected true or false; it counts as false")
    assert len(why) < 300


def test_of_preemptable_the_annotation_counts_before_the_label() -> None:
    assert job({PREEMPTABLE: "false"}, {PREEMPTABLE: "true"}) == Preemption(preemptable=False)
    assert job({}, {PREEMPTABLE: "true"}) == Preemption(is_declared=True)
    wrong = job({PREEMPTABLE: "maybe"}, {PREEMPTABLE: "true"})
    assert wrong is not None
    assert not wrong.preemptable


def test_the_job_counts_before_its_owner_and_that_before_its_pods() -> None:
    yes, no = Claims(None, {PREEMPTABLE: "true"}), Claims(None, {PREEMPTABLE: "false"})
    nothing = Claims(None, None)
    assert preemption_of([yes, no], [no]) == Preemption(is_declared=True)
    assert preemption_of([nothing, no], [yes]) == Preemption(preemptable=False)
    assert preemption_of([nothing, nothing], [yes]) == Preemption(is_declared=True)


def test_one_pod_that_says_no_is_enough() -> None:
    assert pods({PREEMPTABLE: "true"}, {PREEMPTABLE: "false"}, {}) == Preemption(preemptable=False)
    assert pods({PREEMPTABLE: "true"}, {}, {}) == Preemption(is_declared=True)
    wrong = pods({}, {PREEMPTABLE: "perhaps"}, {PREEMPTABLE: "x"})
    assert wrong is not None
    assert wrong.ignored == [
        f"annotation {PREEMPTABLE} of pod p-1 is 'perhaps': expected true or false; it counts as false"
    ]


def test_of_the_cooldown_the_label_counts_before_the_annotation() -> None:
    assert job({COOLDOWN: "1h"}, {COOLDOWN: "10m"}) == Preemption(cooldown_s=600)
    assert job({COOLDOWN: "1h30m"}) == Preemption(cooldown_s=5_400)
    assert pods({COOLDOWN: "30s"}, {COOLDOWN: "1m"}, {}) == Preemption(cooldown_s=60)
    assert job({COOLDOWN: "-1h"}) is None


@pytest.mark.parametrize("text", ["10", "soon", "", "1d", "10 m", "PT10M"])
def test_a_cooldown_that_cannot_be_read_counts_as_absent_and_is_named(text: str) -> None:
    assert job({COOLDOWN: "1h"}, {COOLDOWN: text}) == Preemption(
        ignored=[
            f'label {COOLDOWN} is {text!r}: expected a duration such as "30s", "10m" or "1h30m"; it counts as absent'
        ]
    )


def test_a_notice_is_a_number_of_seconds_of_an_annotation() -> None:
    assert job({NOTICE: "120"}) == Preemption(notice_s=120)
    assert job({}, {NOTICE: "120"}) is None
    assert pods({NOTICE: "5"}, {NOTICE: "30"}) == Preemption(notice_s=30)
    assert job({NOTICE: "600"}) == Preemption(notice_s=600)


def test_a_notice_that_is_too_long_is_cut_and_named() -> None:
    why = f"annotation {NOTICE} is '601': expected at most 600 seconds; it counts as 600"
    assert job({NOTICE: "601"}) == Preemption(notice_s=600, ignored=[why])


@pytest.mark.parametrize("text", ["-1", "1m", "", "1.5", "9" * 30])
def test_a_notice_that_cannot_be_read_is_none_and_is_named(text: str) -> None:
    why = f"annotation {NOTICE} is {text!r}: expected a whole number of seconds up to 600; it counts as 0"
    assert job({NOTICE: text}) == Preemption(ignored=[why])


def test_keys_of_the_plugin_tdm_have_no_effect_and_are_named() -> None:
    annotations = {"volcano.sh/jdb-min-available": "1", "volcano.sh/jdb-max-unavailable": "50%"}
    found = preemption_of(
        [Claims({"volcano.sh/revocable-zone": "*"}, {})], [Claims({}, annotations, "pod a"), Claims({}, annotations)]
    )
    assert found == Preemption(
        ignored=[
            "label volcano.sh/revocable-zone has no effect: no node is taken back at times",
            "annotation volcano.sh/jdb-min-available has no effect: a PodDisruptionBudget says how many pods stay",
            "annotation volcano.sh/jdb-max-unavailable has no effect: a PodDisruptionBudget says how many pods leave",
        ]
    )


def of(text: str) -> Preemption | None:
    (found,) = parse_jobs(text)
    return found.preemption


SAID = f"{PREEMPTABLE}: 'true', {COOLDOWN}: 5m, {NOTICE}: '60'"
FOUND = Preemption(is_declared=True, cooldown_s=300, notice_s=60)


@pytest.mark.parametrize(
    "text",
    [
        berth("{chips: 8, product: module910bx8}", metadata=f"{{name: job, annotations: {{{SAID}}}}}"),
        batch("", annotations=SAID),
        batch("", template=pod(metadata=f"annotations: {{{SAID}}}")),
        volcano(f"  - {{name: w, template: {pod()}}}", metadata=f"name: job\n  annotations: {{{SAID}}}"),
        volcano(f"  - {{name: w, template: {pod(metadata=f'annotations: {{{SAID}}}')}}}"),
        ascend(f"{{Master: {{replicas: 1, template: {pod(metadata=f'annotations: {{{SAID}}}')}}}}}"),
    ],
)
def test_each_form_of_a_job_says_the_same(text: str) -> None:
    assert of(text.replace("{, ", "{")) == FOUND


def test_jobs_that_say_nothing_have_none_in_any_form() -> None:
    assert of(berth("{chips: 8, product: module910bx8}")) is None
    assert of(volcano(f"  - {{name: w, template: {pod()}}}")) is None


def test_a_policy_of_a_template_and_a_class_of_the_system_count() -> None:
    assert of(volcano(f"  - {{name: w, template: {pod(spec='preemptionPolicy: Never')}}}")) == Preemption(never=True)
    assert of(volcano(f"  - {{name: w, template: {pod(spec='preemptionPolicy: PreemptLowerPriority')}}}")) is None
    system = pod(spec="priorityClassName: system-node-critical")
    assert of(volcano(f"  - {{name: w, template: {system}}}")) == Preemption(critical=True)
    named = volcano(f"  - {{name: w, template: {pod()}}}", spec="  priorityClassName: system-cluster-critical\n")
    assert of(named) == Preemption(critical=True)


def test_a_job_in_the_namespace_of_the_system_is_critical() -> None:
    metadata = "{name: job, namespace: kube-system}"
    assert of(berth("{chips: 8, product: module910bx8}", metadata=metadata)) == Preemption(critical=True)


@pytest.mark.parametrize(
    ("policy", "expected"), [("never", "Never"), ("Sometimes", "Never, PreemptLowerPriority"), ("3", "text")]
)
def test_a_policy_that_kubernetes_does_not_have_is_refused(policy: str, expected: str) -> None:
    with pytest.raises(DocumentError, match=rf"spec\.preemptionPolicy.*{policy}.*{expected}"):
        parse_jobs(volcano(f"  - {{name: w, template: {pod(spec=f'preemptionPolicy: {policy}')}}}"))
