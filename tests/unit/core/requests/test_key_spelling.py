"""Labels and annotations that are close to a known one."""

import msgspec
import pytest

from berth.core.requests.key_spelling import _OTHERS, KEY_MAX, KEYS_MAX, misspelled, near_key, spelling_warnings
from berth.formats.ascend.pod_annotations import DISTRIBUTED_JOB
from berth.formats.gang_keys import GROUP_MIN_MEMBER, QUEUE_NAME
from berth.formats.manifests.gang_request import LIFTED, PRIORITY_CLASS, RUN_FOR
from tests.support.cells import a_job


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("tor-afinity", "tor-affinity"),
        ("torAffinity", "tor-affinity"),
        ("tor_affinity", "tor-affinity"),
        ("fault-schedulling", "fault-scheduling"),
        ("fault-retry-time", "fault-retry-times"),
        ("subHealthStrategy", "subHealthyStrategy"),
        ("sub-healthy-strategy", "subHealthyStrategy"),
        ("sp-blocks", "sp-block"),
        ("schedule_policy", "huawei.com/schedule_policy"),
        ("huawei.com/schedule-policy", "huawei.com/schedule_policy"),
        ("huawe.com/schedule_policy", "huawei.com/schedule_policy"),
        ("berth/runfor", "berth/run-for"),
    ],
)
def test_the_key_that_is_meant_is_found(key: str, meant: str) -> None:
    assert near_key(key) == meant


@pytest.mark.parametrize(
    "key",
    [
        "team", "app", "tier", "zone", "version", "env", "release", "component", "priority", "affinity", "schedule",
        "job-name", "app.kubernetes.io/name", "app.kubernetes.io/component", "example.com/framework", "distribution",
        "ring-controller.atlas", "volcano.sh/job-name", "batch.kubernetes.io/job-completion-index", "huawei.com/npu",
        "training.kubeflow.org/job-name", "training.kubeflow.org/operator-name", "dp-block", "blocks", "rack", "host-arch",
        "accelerator", "accelerator-type", "duo", "fault-tolerance", "pod-template-hash", "controller-uid",
    ],
)  # fmt: skip
def test_keys_of_others_are_close_to_none(key: str) -> None:
    assert near_key(key) == ""


@pytest.mark.parametrize("key", sorted({*_OTHERS, *LIFTED, QUEUE_NAME, PRIORITY_CLASS, RUN_FOR, DISTRIBUTED_JOB, GROUP_MIN_MEMBER}))  # fmt: skip
def test_keys_that_are_read_are_known(key: str) -> None:
    assert near_key(key) == ""


def test_a_request_has_a_warning_for_each_key() -> None:
    request = msgspec.structs.replace(
        a_job("j"), labels={"team": "a", "tor-afinity": "normal-schema"}, annotations={"sp-blok": "16", "note": "x"}
    )
    assert spelling_warnings(request) == [
        "label 'tor-afinity' is not known, and is close to 'tor-affinity'",
        "annotation 'sp-blok' is not known, and is close to 'sp-block'",
    ]
    assert spelling_warnings(a_job("j")) == []


def test_many_keys_spelling() -> None:
    """Of any number of keys few are compared; see cases/security/many_keys_spelling.py."""
    wrong = [f"huawei.com/schedule_policy{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    wrong += [f"{key}x" for key in wrong]
    assert len(misspelled(wrong)) == KEYS_MAX < len(wrong)
    before = near_key.cache_info().misses
    request = msgspec.structs.replace(
        a_job("j"), annotations={f"huawei.com/sched{number:05}": "" for number in range(16_000)}
    )
    assert spelling_warnings(request) == []
    assert near_key.cache_info().misses - before <= KEYS_MAX


def test_keys_of_others_take_no_place_among_those_that_are_compared() -> None:
    others = [f"example.com/key-{number}" for number in range(1_000)]
    assert misspelled([*others, "sp-blok"]) == {"sp-blok": "sp-block"}


def test_a_long_key_is_not_compared() -> None:
    assert near_key("huawei.com/schedule_policy" + "x" * KEY_MAX) == ""
    assert misspelled(["x" * 20_000, "sp-blok"]) == {"sp-blok": "sp-block"}
