"""Pods that the kubelet of their node has rejected."""

from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.rejections import rejection_of
from berth.schemas.facts import PodRejection


def a_pod(*, node: str = "n", **status: Any) -> Pod:  # noqa: ANN401  # parts of an object
    return msgspec.convert({"metadata": {"name": "p"}, "spec": {"nodeName": node}, "status": status}, Pod)


ENDED = [{"name": "main", "state": {"terminated": {"exitCode": 1}}}]


@pytest.mark.parametrize(
    ("reason", "message", "found"),
    [
        ("UnexpectedAdmissionError", "", PodRejection.DEVICES),
        ("UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to rpc error", PodRejection.DEVICES),
        ("OutOfhuawei.com/Ascend910", "Node didn't have enough resource", PodRejection.DEVICES),
        ("AdmissionFailed", "the device plugin socket is gone", PodRejection.DEVICES),
        ("TopologyAffinityError", "Resources cannot be allocated with Topology locality", PodRejection.OTHER),
        ("OutOfcpu", "Node didn't have enough resource: cpu", PodRejection.OTHER),
        ("NodeAffinity", "Predicate NodeAffinity failed", PodRejection.OTHER),
        ("NodeShutdown", "Pod was rejected as the node is shutting down.", PodRejection.OTHER),
        ("Evicted", "The node was low on resource: memory", PodRejection.NONE),
        ("DeadlineExceeded", "", PodRejection.NONE),
        ("", "", PodRejection.NONE),
    ],
)
def test_reasons(reason: str, message: str, found: PodRejection) -> None:
    assert rejection_of(a_pod(phase="Failed", reason=reason, message=message)) == found


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(phase="Pending", reason="UnexpectedAdmissionError"),
        a_pod(phase="Failed", reason="UnexpectedAdmissionError", node=""),
        a_pod(phase="Failed", reason="Error", containerStatuses=ENDED),
        a_pod(phase="Failed", reason="Error", initContainerStatuses=ENDED),
    ],
)
def test_pods_that_were_not_rejected(pod: Pod) -> None:
    assert rejection_of(pod) == PodRejection.NONE
