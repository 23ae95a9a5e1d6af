"""Requests that are wrong, one in each way: what is published is not what a client of Berth makes."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from berth.schemas.constraints import Expression
from berth.schemas.envelope import encode
from berth.schemas.facts import TimerSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm, SpreadTerm
from tests.sim.worlds import TOR_AFFINITY
from tests.support.cells import a_job

Wrong: TypeAlias = Callable[[JobRequest], JobRequest]
_POLICY: Final = "huawei.com/schedule_policy"
_HOST: Final = "kubernetes.io/hostname"


def _with(**changes: object) -> Wrong:
    return lambda job: msgspec.structs.replace(job, **changes)


def _task(**changes: object) -> Wrong:
    return lambda job: msgspec.structs.replace(job, tasks=[msgspec.structs.replace(job.tasks[0], **changes)])


def _label(key: str, value: str) -> Wrong:
    return lambda job: msgspec.structs.replace(job, labels={**job.labels, key: value})


def _note(key: str, value: str) -> Wrong:
    return lambda job: msgspec.structs.replace(job, annotations={**job.annotations, key: value})


def _constrained(**changes: object) -> Wrong:
    return _task(constraints=PodConstraints(**changes))  # type: ignore[arg-type]  # fields of the struct


def _of(product: str, **changes: object) -> Wrong:
    """Another job, for a product that has the rule."""

    def made(job: JobRequest) -> JobRequest:
        other = a_job(job.name, product=product, namespace=job.namespace, uid=job.uid)
        return msgspec.structs.replace(other, **changes)

    return made


_EMPTY: Final = LabelSelector((Expression("a", "In"),))
_ODD: Final = LabelSelector((Expression("a", "Near", ("b",)),))  # type: ignore[arg-type]  # no operator

REQUESTS: Final[Mapping[str, Wrong]] = {
    "no tasks": _with(tasks=[]),
    "no pods": _task(replicas=0),
    "too many chips": _task(chips=65),
    "a negative minimum": _with(min_available=-1),
    "a name above the bound": _task(name="w" * 1_000),
    "a minimum above the pods": _with(min_available=99),
    "a gang of no pods": _note("berth/gang-pods", "none"),
    "a minimum that is no number": _note("huawei.com/schedule_minAvailable", "few"),
    "a strategy that is none": _label("subHealthyStrategy", "hope"),
    "a value of faults that is none": _label("fault-scheduling", "hope"),
    "a switch affinity that is none": _label(TOR_AFFINITY, "hope"),
    "a switch affinity of a part": lambda job: _with(min_available=1)(
        _label(TOR_AFFINITY, "normal-schema")(_task(replicas=3)(job))
    ),
    "a virtual NPU": _with(resource="huawei.com/Ascend910-2c"),
    "a device of others": _with(resource="example.com/gpu"),
    "no policy": _with(resource="huawei.com/npu", annotations={}),
    "a policy that is none": lambda job: _note(_POLICY, "chip3-node5")(_with(resource="huawei.com/npu")(job)),
    "a product that is none": _with(
        resource="huawei.com/Ascend910", annotations={}, node_selector={"accelerator-type": "module-x"}
    ),
    "a strategy of 310 that is none": lambda job: _label("npu-310-strategy", "half")(
        _with(resource="huawei.com/Ascend310", annotations={})(job)
    ),
    "shares without quotas": _of("soft-share", labels={}),
    "an odd number of an A3": _of("module910a3x16", tasks=[Task("worker", 2, 3)]),
    "a shape that no 910A has": _of("module910x8", tasks=[Task("worker", 2, 4)]),
    "a size that no 910A has": _of("module910x8", tasks=[Task("worker", 1, 5)]),
    "two pods of a distributed Duo": _of(
        "310p-duo", tasks=[Task("worker", 2, 2)], labels={"duo": "true", "distributed": "true"}
    ),
    "blocks that do not divide": _of("superpod910a3x16", tasks=[Task("worker", 3, 16)], annotations={"sp-block": "32"}),
    "blocks that are no number": _of("superpod910a3x16", annotations={"sp-block": "many"}),
    "levels that are none": _of(
        "superpod910a3x16", annotations={_POLICY: "multilevel", "huawei.com/affinity-config": "level2=3"}
    ),
    "a port twice": _constrained(ports=(HostPort(80), HostPort(80))),
    "a key of spread twice": _constrained(spread=(SpreadTerm(_HOST, 1), SpreadTerm(_HOST, 2))),
    "a selector without values": _constrained(affinity=(PodTerm(_HOST, _EMPTY),)),
    "an operator that is none": _constrained(anti_affinity=(PodTerm(_HOST, _ODD),)),
    "a gang above a record": _task(replicas=70_000, chips=1),
    "a gang above the cluster": _task(replicas=500, chips=1),
    "a claim that is not there": _constrained(claims=("never-made",)),
    "a resource with a slip of the pen": _constrained(resources=(("huawei.com/Ascend91O", 1),)),
    "another namespace": _with(namespace="elsewhere"),
}
"""What becomes of a request; the last one is then on the subject of another job."""
BODIES: Final[tuple[bytes, ...]] = (
    b"no request at all",
    b"",
    b"\x93\xa1x\x01\x90",
    encode(TimerSeen(1)),
    b"\x93\xaeintake.request\x63\x80",
    b"\x93\xaeintake.request\x01\x91\xc0",
    b"\x91" * 200,
)
"""What is no request."""
