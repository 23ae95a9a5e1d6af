"""Traces: what holds for every list of rows, and that any text gives a workload or a clear error."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from berth.core.requests.job_validation import ValidJob, validate
from berth.formats.traces.jobs import kubernetes_name
from berth.formats.traces.reader import TraceError, read_trace
from berth.formats.yaml_tree import is_dns_name
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings

ROWS = st.lists(
    st.tuples(st.decimals(0, 10_000, places=4, allow_nan=False), st.integers(0, 100_000), st.integers(1, 2_000)),
    min_size=1,
    max_size=12,
)


@given(ROWS, st.sampled_from([1, 2, 8, 0.5, 3]))
def test_every_job_gets_its_chips_and_less_than_a_node_more(
    rows: list[tuple[object, int, int]], compress: float
) -> None:
    lines = ["at_s,run_s,chips", *(",".join(map(str, row)) for row in rows)]
    workload = read_trace(lines, compress=compress, declare=1.0)
    assert [job.at_ms for job in workload.jobs] == sorted(job.at_ms for job in workload.jobs)
    by_name = {job.request.name: job for job in workload.jobs}
    for number, (at, run, chips) in enumerate(rows, 1):
        job = by_name[f"job-{number:06}"]
        (task,) = job.request.tasks
        assert chips <= task.replicas * task.chips < chips + 8
        assert abs(job.at_ms - Fraction(str(at)) * 1000 / Fraction(str(compress))) <= Fraction(1, 2)
        assert job.run_ms == run * 1000
        assert isinstance(validate(job.request, Settings()), ValidJob)
    assert read_trace(lines, compress=compress, declare=1.0) == workload


@given(st.text(max_size=30), st.text(max_size=30))
def test_names_of_kubernetes_are_names_and_those_that_differ_stay_apart(one: str, other: str) -> None:
    made = kubernetes_name(one)
    assert is_dns_name(made)
    assert "." not in made
    assert len(made) <= 63
    assert kubernetes_name(made) == made
    assert (made == kubernetes_name(other)) == (one == other)
    assert JobRequest(made, made, "", "", []).name == made


CELLS = st.sampled_from(
    [
        "at_s",
        "run_s",
        "chips",
        "0",
        "1",
        "-1",
        "1.5",
        "8",
        "x",
        '"',
        "#",
        "",
        "pods",
        "name",
        "a=b",
        "2017-10-09 07:01:55",
    ]
) | st.text(max_size=4)
TEXTS = st.lists(st.lists(CELLS, max_size=5).map(",".join), max_size=6)


@given(TEXTS, st.booleans(), st.booleans())
def test_any_text_is_a_workload_or_a_fault_with_words(lines: list[str], has_header: bool, strict: bool) -> None:  # noqa: FBT001  # drawn
    text = [f"{line}\n" for line in (["at_s,run_s,chips", *lines] if has_header else lines)]
    fault, workload = None, None
    try:
        workload = read_trace(text, strict=strict)
    except TraceError as error:
        fault = error
    if fault is None:
        assert workload is not None
        assert workload.jobs
    else:
        assert fault.count >= 1
        assert fault.expected
        assert 0 <= fault.line <= len(text)
