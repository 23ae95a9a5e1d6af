"""Queues of Volcano: what they would hold back is scheduled, and it is said."""

from collections import Counter

import msgspec
import pytest

from berth.formats.kubernetes.policies import Queue
from berth.schemas.intake import JobRequest, Task
from berth.services.inventory.publishing.queues import Queues, amounts

CHIPS = "huawei.com/Ascend910"
ALL_THE_SAME = "Berth has no quotas, the job is scheduled all the same"


def a_queue(name: str, state: str = "Open", **capability: str) -> Queue:
    limits = {key.replace("chips", CHIPS): value for key, value in capability.items()}
    tree = {"metadata": {"name": name}, "spec": {"capability": limits}, "status": {"state": state}}
    return msgspec.convert(tree, Queue)


def warning(queues: Queues, name: str, **requested: int) -> str:
    return queues.warning(name, lambda: Counter({key.replace("chips", CHIPS): n for key, n in requested.items()}))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("open", ""),
        ("default", ""),
        ("gold", f"queue gold does not exist: {ALL_THE_SAME}"),
        ("shut", f"queue shut is closed: {ALL_THE_SAME}"),
        ("shutting", f"queue shutting is closing: {ALL_THE_SAME}"),
        ("exact", ""),
        ("small", f"queue small is over its capability, its jobs request 16 of 8 {CHIPS}: {ALL_THE_SAME}"),
        ("slow", f"queue slow is over its capability, its jobs request 2000m of 1500m cpu: {ALL_THE_SAME}"),
        ("lean", f"queue lean is over its capability, its jobs request 4096 MiB of 2048 MiB memory: {ALL_THE_SAME}"),
        ("odd", f"queue odd: spec.capability.{CHIPS} is 'many', expected "),
    ],
)
def test_what_a_queue_would_hold_back_is_said(name: str, wanted: str) -> None:
    queues = Queues()
    queues.replace(
        [
            a_queue("open"),
            a_queue("shut", "Closed"),
            a_queue("shutting", "Closing"),
            a_queue("exact", chips="16", cpu="2", memory="4Gi"),
            a_queue("small", chips="8"),
            a_queue("slow", cpu="1500m"),
            a_queue("lean", memory="2Gi"),
            a_queue("odd", chips="many"),
        ]
    )
    found = warning(queues, name, chips=16, cpu=2_000, memory=4_096)
    assert found.startswith(wanted) if wanted else found == ""


def test_nothing_is_said_before_queues_are_listed_and_changes_count() -> None:
    queues = Queues()
    assert warning(queues, "gold") == ""
    queues.replace([])
    assert warning(queues, "gold") != ""
    queues.change([("ADDED", a_queue("gold"))])
    assert warning(queues, "gold") == ""
    queues.change([("DELETED", a_queue("gold"))])
    assert warning(queues, "gold") != ""


def test_what_jobs_request_is_summed_by_queue() -> None:
    def request(name: str, queue: str) -> JobRequest:
        tasks = [Task("worker", 2, 8, 1_000, 1_024), Task("master", 1, 0, 500, 256)]
        return JobRequest("ns", name, name, CHIPS, tasks, queue=queue)

    found = amounts([request("a", "gold"), request("b", "gold"), request("c", "default")])
    assert found["gold"] == {CHIPS: 32, "cpu": 5_000, "memory": 4_608}
    assert found["default"] == {CHIPS: 16, "cpu": 2_500, "memory": 2_304}


def test_root_and_default_are_missing_once_queues_are_listed() -> None:
    queues = Queues()
    assert queues.missing() == []
    queues.replace([a_queue("gold")])
    assert queues.missing() == ["root", "default"]
    queues.change([("ADDED", a_queue("root"))])
    assert queues.missing() == ["default"]
