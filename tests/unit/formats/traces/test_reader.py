"""Traces as workloads: shapes, names, times, notes, and what is said of a trace that cannot be read."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from berth.core.requests.job_validation import ValidJob, validate
from berth.core.topologies.switches.demand import TOR_AFFINITY
from berth.core.topologies.switches.occupancy.leaf_states import LARGE_PODS_MIN
from berth.formats.ascend.pod_annotations import TOR_AFFINITY as FORMAT_LABEL
from berth.formats.traces import jobs
from berth.formats.traces.reader import OPTIONAL, REQUIRED, TraceError, read_trace
from berth.products.catalogue import FORMS
from berth.schemas.intake import Task
from berth.schemas.ledger import Settings
from berth.schemas.workload import PlannedJob, Workload
from tests.support.traces import trace_lines

DOCUMENT = Path(__file__).parents[4] / "docs" / "simulate.md"
KALOS = "job_id,arrival_time,num_iteration,gpu_workers,gpu_per_worker,profiled_network\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def read(text: str, **options: Any) -> Workload:  # noqa: ANN401  # any argument of the reader
    return read_trace(text.splitlines(keepends=True), **options)


def of_csv(*rows: str, columns: str = "at_s,run_s,chips", **options: Any) -> Workload:  # noqa: ANN401  # as above
    return read("\n".join([columns, *rows]), **options)


def wrong(text: str, **options: Any) -> TraceError:  # noqa: ANN401  # as above
    with pytest.raises(TraceError) as caught:
        read(text, **options)
    return caught.value


def shape(job: PlannedJob) -> tuple[int, int]:
    (task,) = job.request.tasks
    return task.replicas, task.chips


def test_a_job_asks_for_a2_nodes_and_is_named_by_its_row() -> None:
    (job,) = of_csv("3,60,16").jobs
    assert (job.at_ms, job.run_ms, job.cancel_ms) == (3_000, 60_000, 0)
    request = job.request
    assert (request.namespace, request.name, request.queue, request.priority) == ("default", "job-000001", "default", 0)
    assert request.resource == "huawei.com/Ascend910"
    assert request.node_selector == {"accelerator-type": "module-910b-8"}
    assert request.tasks == [Task("worker", 2, 8)]
    assert request.run_ms == 0
    valid = validate(request, Settings())
    assert isinstance(valid, ValidJob)
    assert valid.form == "module910bx8"


@pytest.mark.parametrize(
    ("chips", "pods", "label"),
    [
        (1, (1, 1), "normal-schema"),
        (8, (1, 8), "normal-schema"),
        (24, (3, 8), "normal-schema"),
        (32, (4, 8), "large-model-schema"),
        (1024, (128, 8), "large-model-schema"),
    ],
)
def test_a_gang_fills_nodes_and_is_a_large_model_from_four_pods_on(
    chips: int, pods: tuple[int, int], label: str
) -> None:
    (job,) = of_csv(f"0,1,{chips}").jobs
    assert shape(job) == pods
    assert job.request.labels == {"tor-affinity": label}


def test_the_label_and_the_bound_are_those_that_decide() -> None:
    assert (jobs.LARGE_PODS_MIN, FORMAT_LABEL) == (LARGE_PODS_MIN, TOR_AFFINITY)


@pytest.mark.parametrize(("affinity", "labelled"), [("all", [1, 2]), ("gangs", [2]), ("none", [])])
def test_switch_affinity_can_be_for_gangs_alone_or_for_nobody(affinity: str, labelled: list[int]) -> None:
    jobs = of_csv("0,1,8", "0,1,16", affinity=affinity).jobs
    assert [shape(job)[0] for job in jobs if "tor-affinity" in job.request.labels] == labelled


def test_chips_that_fill_no_equal_pods_are_rounded_up_and_counted() -> None:
    workload = of_csv("0,1,12", "1,1,8", "2,1,17")
    assert [shape(job) for job in workload.jobs] == [(2, 8), (1, 8), (3, 8)]
    assert workload.notes == [
        "jobs whose chips do not fill equal pods and were rounded up: 2; such as line 2, 12 chips: 2 pods of 8 are 16"
    ]


def test_pods_of_a_size_that_the_form_forbids_are_rounded_up_and_counted() -> None:
    form = FORMS["module910x8"]
    sizes = [size for size in range(1, 9) if size not in form.forbidden]
    workload = of_csv("0,1,3", "1,1,6", "2,1,2", product="module910x8", sizes=sizes)
    assert [shape(job) for job in workload.jobs] == [(1, 4), (1, 8), (1, 2)]
    assert workload.notes == [
        "jobs whose chips a pod module910x8 does not give (it gives 1, 2, 4, 8) and were rounded up: 2; such as line 2,"
        " 3 chips a pod: 4"
    ]
    assert all(isinstance(validate(job.request, Settings()), ValidJob) for job in workload.jobs)


def test_a_form_that_is_asked_for_by_policy_is() -> None:
    (job,) = of_csv("0,1,3", product="chip1-node16").jobs
    assert job.request.annotations == {"huawei.com/schedule_policy": "chip1-node16"}
    assert job.request.resource == "huawei.com/npu"


@pytest.mark.parametrize(
    ("row", "pods"), [("16,4,", (4, 4)), ("16,,2", (8, 2)), ("16,4,4", (4, 4)), ("9,2,", (2, 5)), ("9,,4", (3, 4))]
)
def test_a_row_may_say_its_pods(row: str, pods: tuple[int, int]) -> None:
    (job,) = of_csv(f"0,1,{row}", columns="at_s,run_s,chips,pods,chips_per_pod").jobs
    assert shape(job) == pods


def test_jobs_stand_by_arrival_and_those_of_one_moment_by_row() -> None:
    workload = of_csv("2,1,1", "1,1,1", "2,1,1", "0.5,1,1")
    assert [job.request.name[-1] for job in workload.jobs] == ["4", "2", "1", "3"]
    assert workload.notes == ["rows are not in the order of arrival; jobs were sorted by it"]


def test_compression_divides_arrivals_alone() -> None:
    (job,) = of_csv("100,60,1,130", columns="at_s,run_s,chips,cancel_s", compress=8).jobs
    assert (job.at_ms, job.run_ms, job.cancel_ms) == (12_500, 60_000, 42_500)


def test_parts_of_milliseconds_are_rounded_half_up_and_counted() -> None:
    workload = of_csv("0.0005,1.2345,1", "0.00149,2,1")
    assert [(job.at_ms, job.run_ms) for job in workload.jobs] == [(1, 1_235), (1, 2_000)]
    assert workload.notes == [
        "arrival times that are no whole milliseconds and were rounded, the half up: 2; such as line 2, 0.0005 s: 1 ms",
        "run times that are no whole milliseconds and were rounded, the half up: 1; such as line 2, 1.2345 s: 1235 ms",
    ]


@pytest.mark.parametrize(("declare", "run_ms"), [(None, [0, 5_000]), (1.0, [60_000, 5_000]), (2.5, [150_000, 5_000])])
def test_declared_run_times_follow_the_factor_unless_the_row_says_its_own(
    declare: float | None, run_ms: list[int]
) -> None:
    workload = of_csv("0,60,1,", "0,60,1,5", columns="at_s,run_s,chips,declared_s", declare=declare)
    assert [job.request.run_ms for job in workload.jobs] == run_ms


def test_a_job_of_no_length_ends_at_once_and_is_counted() -> None:
    workload = of_csv("0,0,1", declare=1.0)
    assert [(job.run_ms, job.request.run_ms) for job in workload.jobs] == [(0, 1)]
    assert workload.notes == ["jobs that run 0 ms and end at once: 1; such as line 2, 0 s"]


def test_every_optional_column_is_read() -> None:
    columns = "at_s,run_s,chips,name,namespace,priority,tor_affinity,queue,labels,annotations"
    (job,) = of_csv("0,1,8,train,team-a,-5,null,night,framework=pytorch; a=,x/y=z", columns=columns).jobs
    request = job.request
    assert (request.name, request.namespace, request.priority, request.queue) == ("train", "team-a", -5, "night")
    assert request.labels == {"tor-affinity": "null", "framework": "pytorch", "a": ""}
    assert request.annotations == {"x/y": "z"}


def test_names_become_those_of_kubernetes_and_stay_apart() -> None:
    workload = of_csv(
        "0,1,1,Train_1,A", "1,1,1,train-1,a", "2,1,1,train 1,a", columns="at_s,run_s,chips,name,namespace"
    )
    names = [(job.request.namespace, job.request.name) for job in workload.jobs]
    assert names == [("a-d3d99e8b", "train-1-c0d4ffef"), ("a", "train-1"), ("a", "train-1-a7cea34a")]
    assert workload.notes == [
        "names that Kubernetes does not allow and that were escaped: 2; such as line 2, 'Train_1': train-1-c0d4ffef",
        "namespaces that Kubernetes does not allow and that were escaped: 1; such as line 2, 'A': a-d3d99e8b",
    ]


def test_comments_blank_lines_and_blanks_around_fields_are_passed_over() -> None:
    text = '\ufeff# made "by hand\n\nat_s , run_s,chips\n# a, b\n 1,\t2 ,3\n\n'
    (job,) = read(text).jobs
    assert (job.at_ms, job.run_ms, shape(job)) == (1_000, 2_000, (1, 3))


def test_rows_of_kalos_say_their_nodes() -> None:
    workload = read(f"{KALOS}0,0.0,208,8,8.0,500\n1,313.0,3,1,2.0,500\n2,400,1,2,16,1000\n")
    assert workload.name == "kalos"
    assert [shape(job) for job in workload.jobs] == [(8, 8), (1, 2), (4, 8)]
    assert [(job.at_ms, job.run_ms) for job in workload.jobs] == [(0, 104_000), (313_000, 1_500), (400_000, 500)]
    assert workload.notes == [
        "columns that are not read: job_id, profiled_network",
        "run times are num_iteration times 0.5 s",
    ]


def test_rows_of_philly_count_from_the_first_and_have_their_cluster_as_namespace() -> None:
    workload = read(f"{PHILLY}2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-08 23:59:59,5.5,12,66.0,Ab\n")
    assert workload.name == "philly"
    first, second = workload.jobs
    assert (first.at_ms, first.run_ms, shape(first)) == (0, 5_500, (2, 8))
    assert (second.at_ms, second.request.namespace) == ((7 * 3600 + 2 * 60 - 4 - 1 + 0) * 1000 + 1_000, "11cb48")


@pytest.mark.parametrize(
    ("text", "line", "column", "value", "expected"),
    [
        ("", 0, "", "empty", "a header that names the columns, and a row for each job"),
        ("at_s,run_s,chips\n", 1, "", "no row", "a row for each job below the header"),
        (
            "run_s,x\n",
            1,
            "at_s, chips",
            "missing in a header of 'run_s', 'x'",
            "columns at_s, run_s, chips for a trace of kind csv",
        ),
        ("at_s,run_s,chips,at_s\n", 1, "at_s", "named twice", "each column once"),
        ("at_s,run_s,chips\n1,2\n", 2, "chips", "a row of 2 fields", "3 fields, as in the header"),
        ("at_s,run_s,chips\n1,2,3,4\n", 2, "", "a row of 4 fields", "3 fields, as in the header"),
        ("at_s,run_s,chips\n-1,2,3\n", 2, "at_s", "'-1'", "a number of seconds from 0 to 9007199254740"),
        ("at_s,run_s,chips\n1,-2,3\n", 2, "run_s", "'-2'", "a number of seconds from 0 to 9007199254740"),
        ("at_s,run_s,chips\n1,nan,3\n", 2, "run_s", "'nan'", "a number of seconds from 0 to 9007199254740"),
        ("at_s,run_s,chips\n1,,3\n", 2, "run_s", "missing", "a number of seconds from 0 to 9007199254740"),
        ("at_s,run_s,chips\n1,1e16,3\n", 2, "run_s", "'1e16'", "a number of seconds from 0 to 9007199254740"),
        ("# a\nat_s,run_s,chips\n\n1,2,0\n", 4, "chips", "'0'", "a whole number from 1 to 8000000"),
        ("at_s,run_s,chips\n1,2,1.5\n", 2, "chips", "'1.5'", "a whole number from 1 to 8000000"),
        ('at_s,run_s,chips\n1,2,"3\n', 2, "", "wrong: unexpected end of data", "well-formed CSV"),
        (
            "at_s,run_s,chips,chips_per_pod\n1,2,32,16\n",
            2,
            "",
            "16 chips a pod",
            "at most 8 chips a pod, which a node of module910bx8 has",
        ),
        (
            "at_s,run_s,chips,name\n1,2,3,a\n1,2,3,b\n1,2,3,a\n",
            4,
            "name",
            "default/a",
            "another name: the job of line 2 has it",
        ),
        ("at_s,run_s,chips,cancel_s\n5,2,3,5\n", 2, "cancel_s", "'5'", "a moment after the arrival at 5 s"),
        ("at_s,run_s,chips,labels\n5,2,3,a=b;c\n", 2, "labels", "'a=b;c'", "key=value;key=value, each key once"),
        ("at_s,run_s,chips,labels\n5,2,3,a=b;a=c\n", 2, "labels", "'a=b;a=c'", "key=value;key=value, each key once"),
        (
            "at_s,run_s,chips,tor_affinity\n5,2,3,normal\n",
            2,
            "tor_affinity",
            "'normal'",
            "'normal-schema'? (one of large-model-schema, normal-schema, null)",
        ),
        (
            f"{PHILLY}2017-02-29 07:01:55,1,1,1,a\n",
            2,
            "timestamp",
            "'2017-02-29 07:01:55'",
            "a date and a time of day, such as 2017-10-09 07:01:55",
        ),
        (f"{KALOS}0,0.0,208,0,8.0,500\n", 2, "gpu_workers", "'0'", "a whole number from 1 to 1000000"),
    ],
)
def test_a_fault_says_its_line_its_column_its_value_and_what_would_be_right(
    text: str, line: int, column: str, value: str, expected: str
) -> None:
    error = wrong(text)
    assert (error.line, error.column, error.value, error.expected) == (line, column, value, expected)
    assert (error.count, len(error.faults)) == (1, 1)


def test_columns_of_no_known_kind_are_answered_with_those_of_each() -> None:
    assert str(wrong("a,b\n1,2\n")) == (
        "line 1: is a header of 'a', 'b', expected the columns of a known kind (csv: at_s, run_s, chips; kalos:"
        " arrival_time, num_iteration, gpu_workers, gpu_per_worker; philly: timestamp, duration, num_gpus, cluster)"
    )
    assert wrong("at_s,run_s,chips\n0,1,1\n", kind="philly").column == "timestamp, duration, num_gpus, cluster"


def test_a_misspelt_column_is_a_fault_and_a_strange_one_is_left_out() -> None:
    assert "'priority'? (one of" in wrong("at_s,run_s,chips,priorities\n0,1,1,5\n").expected
    assert of_csv("0,1,1,me", columns="at_s,run_s,chips,user").notes == ["columns that are not read: user"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compress": 0.0}, "is compress 0.0, expected a number above 0"),
        ({"compress": float("nan")}, "is compress nan, expected a number above 0"),
        ({"declare": -1.0}, "is declare -1.0, expected a number above 0"),
        ({"kind": "phily"}, "is kind 'phily', expected 'philly'? (one of auto, csv, kalos, philly)"),
        ({"affinity": "some"}, "is affinity 'some', expected 'none'? (one of all, gangs, none)"),
    ],
)
def test_a_wrong_argument_is_a_fault_of_no_line(options: dict[str, Any], message: str) -> None:
    assert str(wrong("at_s,run_s,chips\n0,1,1\n", **options)) == message


def test_strict_tells_every_row_that_is_wrong_by_line_and_at_most_twenty() -> None:
    rows = ["0,1,1,same", "0,1,1,same", "0,x,1,b", *[f"-1,1,1,r{number}" for number in range(28)], '0,1,1,"open']
    error = wrong("\n".join(["at_s,run_s,chips,name", *rows]), strict=True)
    assert error.count == 31
    assert [fault.line for fault in error.faults] == list(range(3, 23))
    lines = str(error).splitlines()
    assert lines[0] == "line 3: column name: is default/same, expected another name: the job of line 2 has it"
    assert lines[-1] == "and 11 more of 31 faults"


def test_kalos_is_read_whole() -> None:
    workload = read_trace(trace_lines("kalos"), compress=8)
    assert len(workload.jobs) == 319
    assert Counter(shape(job) for job in workload.jobs).most_common(3) == [((64, 8), 73), ((32, 8), 52), ((1, 2), 41)]
    assert max(pods * chips for pods, chips in map(shape, workload.jobs)) == 1024
    assert [note for note in workload.notes if "rounded" in note] == []
    assert all(isinstance(validate(job.request, Settings()), ValidJob) for job in workload.jobs)


def test_philly_is_read_whole_and_its_roundings_are_told() -> None:
    workload = read_trace(trace_lines("philly"), declare=1.0)
    assert len(workload.jobs) == 82_247
    assert len({job.request.namespace for job in workload.jobs}) == 15
    assert [job.at_ms for job in workload.jobs[:1]] == [0]
    assert workload.notes == [
        "columns that are not read: gpu_time",
        "rows are not in the order of arrival; jobs were sorted by it",
        "jobs whose chips do not fill equal pods and were rounded up: 7; such as line 9938, 12 chips: 2 pods of 8 are 16",
    ]
    assert all(job.request.run_ms == job.run_ms for job in workload.jobs)


def test_the_document_describes_every_column_and_its_example_is_read() -> None:
    section = DOCUMENT.read_text("utf-8").partition("## CSV form")[2].partition("\n## ")[0]
    columns = re.findall(r"^\| `(\w+)` \| (yes|no) \|", section, re.MULTILINE)
    assert columns == [(name, "yes") for name in REQUIRED["csv"]] + [(name, "no") for name in OPTIONAL]
    example = section.partition("```csv\n")[2].partition("```")[0]
    assert [(job.at_ms, shape(job), job.request.run_ms) for job in read(example).jobs] == [
        (0, (8, 8), 7_200_000),
        (12_500, (1, 8), 0),
        (60_000, (1, 1), 0),
    ]
