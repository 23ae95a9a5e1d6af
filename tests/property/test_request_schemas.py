"""The schemas of requests refuse nothing that the service takes; a field that is null counts as missing."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.schemas.programs.documents import shape_schema
from berth.schemas.programs.lists import DrainsRequest, FaultsRequest, JobsRequest, PlacesRequest, UsageRequest
from berth.schemas.programs.requests import (
    CancelRequest,
    EventsRequest,
    ExplainRequest,
    NodesRequest,
    RightsRequest,
    StatusRequest,
    SubmitManyRequest,
    SubmitRequest,
)
from berth.schemas.programs.shape import Request
from berth.services.api.request_errors import RequestError, decoded
from berth.services.api.submission import read_submission, read_submissions
from tests.support.json_schema import fits

WORDS = st.sampled_from(["", "a", "a.b", "A", "-", "team-a", "x" * 63, "x" * 64, "0", "3", "1Gi", "500m", "30s", " 4 "])
NUMBERS = st.integers(-2, 70) | st.sampled_from([1_000_000, 1_000_001, 2_000_001_000, 2_000_001_001, 0.5, 8.0, 1e9])
TABLES = st.dictionaries(WORDS, WORDS, max_size=2)
ANYTHING = (
    WORDS
    | NUMBERS
    | st.dictionaries(WORDS, NUMBERS, max_size=1)
    | st.booleans()
    | st.none()
    | TABLES
    | st.lists(TABLES | WORDS, max_size=2)
)
TERMS = st.lists(
    st.just({"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}) | TABLES, min_size=1, max_size=2
)
TOLERATIONS = st.lists(st.just({"key": "k", "operator": "Exists"}) | TABLES, max_size=2)
POD = {
    "replicas": st.integers(1, 4),
    "chips": st.sampled_from([1, 2, 8, "8", " 4"]),
    "cpu": st.sampled_from([1, 0.5, "500m", "4"]),
    "memory": st.sampled_from([1, 1e9, "1Gi"]),
    "affinity": TERMS,
    "tolerations": TOLERATIONS,
}
SHARE = st.fixed_dictionaries(
    {"aicore": st.integers(0, 101), "hbmMib": st.integers(0, 9), "policy": st.sampled_from(["elastic", "all"])}
)
TASK = st.fixed_dictionaries({"name": WORDS}, optional={**POD, "nodeSelector": TABLES})
SPEC = {
    "product": st.sampled_from(["module910bx8", "module910a3x16", "none"]),
    "resource": st.sampled_from(["huawei.com/Ascend910", ""]),
    "policy": WORDS,
    "queue": WORDS,
    "priority": NUMBERS,
    "minAvailable": st.integers(0, 3),
    "runFor": st.sampled_from([0, "0", "30s", "1h"]),
    "nodeSelector": TABLES,
    "softShare": SHARE,
    "tasks": st.lists(TASK, max_size=2),
    "near": TABLES,
    **POD,
}
METADATA = st.fixed_dictionaries(
    {"name": st.sampled_from(["train", "a.b", "x" * 253, "A"])},
    optional={
        "namespace": st.sampled_from(["team-a", "x" * 63, "x" * 64]),
        "uid": st.sampled_from(["u", "u" * 1_000, "u" * 1_001]),
        "labels": TABLES,
        "annotations": TABLES,
    },
)


@st.composite
def job_files(draw: st.DrawFn) -> dict[str, Any]:
    """Job files of which many are taken, and some have one field that is anything."""
    parts = draw(st.lists(st.sampled_from(sorted(SPEC)), max_size=3, unique=True))
    spec = {"product": "module910bx8", "chips": 8} | {part: draw(SPEC[part]) for part in parts}
    if "tasks" in parts:
        spec = {name: value for name, value in spec.items() if name not in POD}
    job: dict[str, Any] = {"apiVersion": "berth/v1", "kind": "Job", "metadata": draw(METADATA), "spec": spec}
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.sampled_from([job, job["metadata"], spec]))
        place[draw(st.sampled_from([*place, "other"]))] = draw(ANYTHING)
    return job


def without_nulls(value: Any) -> Any:  # noqa: ANN401  # any JSON
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def accepts(kind: type[Request], value: object) -> bool:
    schema = shape_schema(kind)
    return fits(without_nulls(value), {"$ref": schema["$ref"]}, schema["$defs"])


def is_taken(value: object) -> bool:
    try:
        read_submission(msgspec.json.encode(value), "")
    except RequestError:
        return False
    return True


def a_job(**spec: object) -> dict[str, Any]:
    return {"apiVersion": "berth/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}


@pytest.mark.parametrize(
    "spec",
    [
        {"product": "module910bx8", "chips": "8"},
        {"product": "module910bx8", "chips": 8, "cpu": 3.5, "memory": "1Gi"},
        {"product": "module910bx8", "chips": 8, "runFor": 0, "softShare": None},
        {"product": "module910bx8", "chips": 8, "tolerations": [{"operator": "Exists"}]},
        {
            "product": "module910bx8",
            "chips": 8,
            "affinity": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}],
        },
        {"product": "module910bx8", "tasks": [{"name": "a", "chips": 8}, {"name": "b", "replicas": 2}]},
        {
            "chips": 1,
            "softShare": {"aicore": 100, "hbmMib": 1, "policy": "elastic"},
            "resource": "huawei.com/Ascend910",
        },
    ],
)
def test_each_form_of_a_field_is_taken_and_fits(spec: dict[str, Any]) -> None:
    assert is_taken({"job": a_job(**spec)})
    assert accepts(SubmitRequest, {"job": a_job(**spec)})


@given(job=job_files())
def test_a_job_file_that_is_taken_fits_its_schema(job: dict[str, Any]) -> None:
    if is_taken({"job": job}):
        assert accepts(SubmitRequest, {"job": job})
        read = read_submissions(msgspec.json.encode({"jobs": [job]}), "")
        assert not isinstance(read[0], RequestError)
        assert accepts(SubmitManyRequest, {"jobs": [job]})


@pytest.mark.parametrize(
    ("version", "kind"),
    [("batch.volcano.sh/v1alpha1", "Job"), ("mindxdl.gitee.com/v1", "AscendJob"), ("batch/v1", "Job")],
)
def test_jobs_of_other_kinds_fit_the_schema(version: str, kind: str) -> None:
    assert accepts(SubmitRequest, {"job": {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": {}}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "Job", "metadata": {"name": "a"}, "spec": {}},
        {"apiVersion": "berth/v1", "metadata": {"name": "a"}, "spec": {}},
        {"apiVersion": "berth/v1", "kind": "Job", "metadata": {}, "spec": {}},
        {"apiVersion": "berth/v2", "kind": "Job", "metadata": {"name": "a"}, "spec": {}},
        a_job(chips=-1),
        a_job(prodct="x"),
        a_job(softShare={"aicore": 101, "hbmMib": 1, "policy": "elastic"}),
        {**a_job(), "metadata": {"name": "A"}},
    ],
)
def test_what_is_plainly_wrong_fits_no_schema_and_is_not_taken(wrong: dict[str, Any]) -> None:
    assert not accepts(SubmitRequest, {"job": wrong})
    assert not is_taken({"job": wrong})


KINDS: tuple[type[Request], ...] = (
    CancelRequest, StatusRequest, ExplainRequest, EventsRequest, RightsRequest, NodesRequest, JobsRequest, UsageRequest,
    PlacesRequest, FaultsRequest, DrainsRequest,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_other_requests_that_are_taken_fit_their_schemas(kind: type[Request], data: st.DataObject) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    given_names = data.draw(st.lists(st.sampled_from([*names, "other"]), unique=True) if names else st.just([]))
    value = {name: data.draw(ANYTHING | st.lists(WORDS, max_size=2)) for name in given_names}
    try:
        decoded(msgspec.json.encode(value), kind)
    except RequestError:
        return
    assert accepts(kind, value)
