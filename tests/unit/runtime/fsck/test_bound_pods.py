"""Bound pods, as ``berth fsck --cluster`` reads them."""

from typing import Any

from berth.formats.ascend.mark_proofs import MarkProofs
from berth.runtime.fsck.pod_check import bound_pods
from tests.support.fake_kube import FakeKube
from tests.support.kube_binder import a_node, a_pod

MARKS = MarkProofs([bytes(range(32))])
PATH = "/api/v1/namespaces/ns/pods"


async def test_marks_that_nothing_proves_do_not_count_with_keys() -> None:
    kube = FakeKube()
    kube.put("/api/v1/nodes", a_node("n0"))
    written: Any = {
        "berth__job": "job",
        "berth__uid": "u",
        "berth__attempt": "1",
        "berth__rank": "0",
        "berth__ledger": "s/1/9",
    }
    kube.put(PATH, a_pod("false", node="n0", **written))
    right = kube.put(PATH, a_pod("right", node="n0", **written))
    meta = right["metadata"]
    meta["annotations"] = MARKS.proved(meta["uid"], meta["annotations"])
    kube.put(PATH, right)
    found = {pod.name: (pod.job_uid, pod.sequence, pod.has_code) for pod in await bound_pods(kube, MARKS)}
    assert found == {"ns/false": ("", 0, False), "ns/right": ("u", 9, True)}
    assert {pod.job_uid for pod in await bound_pods(kube)} == {"u"}
