"""Paths of the Kubernetes API that are built from names: no name leads to another object."""

from urllib.parse import unquote

import pytest
import yarl
from hypothesis import example, given
from hypothesis import strategies as st

from berth.formats.kubernetes.paths import api_path, is_path, sub_path
from berth.formats.kubernetes.workloads.port import OwnerKey, OwnerKind
from berth.formats.kubernetes.workloads.registry import kinds, paths

NAMES = st.text() | st.text(alphabet="aZ0-._~:/?#%&=;@ \\é\n", max_size=12)
KINDS = st.sampled_from(sorted(kinds().named))


@given(NAMES)
@example(".")
@example("..")
@example("")
@example("../../../../../../api/v1/pods")
@example("x?watch=true")
@example("x#y")
@example("%2e%2e")
@example("x\n")
def test_a_path_that_is_sent_has_each_name_as_one_step(name: str) -> None:
    path = api_path("v1", "namespaces", name, "configmaps", name)
    if not is_path(path):
        return
    sent = yarl.URL(f"http://127.0.0.1:1{path}")
    assert sent.raw_path_qs == path, "the library of HTTP changes nothing in it"
    assert path.split("/") == ["", "api", "v1", "namespaces", name, "configmaps", name]


@given(NAMES)
def test_a_step_can_be_read_back(name: str) -> None:
    path = sub_path("/api/v1/nodes", name, "status")
    assert unquote(path.split("/")[4]) == name
    assert path.endswith("/status")


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,60}[a-z0-9])?", fullmatch=True), st.from_regex(r"[a-z]{1,5}(:[a-z.]{1,5})?", fullmatch=True))  # fmt: skip
def test_names_that_objects_can_have_stay_as_they_are(name: str, role: str) -> None:
    path = api_path("batch/v1", "namespaces", name, "jobs", role)
    assert path == f"/apis/batch/v1/namespaces/{name}/jobs/{role}"
    assert is_path(path) == (".." not in (name, role))


@given(KINDS, NAMES)
@example("JobSet", "../../../../../../api/v1/pods")
def test_the_path_of_an_owner_stays_in_its_collection(kind: OwnerKind, name: str) -> None:
    for path in paths(OwnerKey(kind, "ns", name)):
        if is_path(path):
            assert path.split("/")[-4:-2] == ["namespaces", "ns"]
            assert path.split("/")[-1] == name


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "api/v1/pods",
        "/api/v1/pods/",
        "/api//v1/pods",
        "/api/v1/./pods",
        "/api/v1/..",
        "/api/v1/../v1/pods",
        "/api/v1/pods?limit=1",
        "/api/v1/pods#a",
        "/api/v1/%70ods",
        "/api/v1/pods\n",
        "/api/v1/pods a",
        "/api/v1\\..\\pods",
    ],
)
def test_a_path_that_could_mean_another_is_none(path: str) -> None:
    assert not is_path(path)


@pytest.mark.parametrize("path", ["/version", "/api/v1", "/api/v1/nodes/..a", "/apis/a.b/v1/namespaces/n/x/a..b"])
def test_a_plain_path_is_one(path: str) -> None:
    assert is_path(path)
