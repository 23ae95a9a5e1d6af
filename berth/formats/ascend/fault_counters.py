"""ConfigMap ``vcjob-fault-npu-cm``: faulty nodes, and how often failed pods may still restart each job.

The Ascend operator looks a job up by ``<namespace>/<name of the job>-<uid of the job>``, which is the name of its
PodGroup: a failed pod makes the job Restarting if ``Times`` is 1 or more, otherwise Failed.

Source: docs/reference/faults.md, "What is written after a fault".
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from berth.formats.ascend.report_error import decoded
from berth.formats.whole_numbers import Int64

NAMESPACE: Final = "volcano-system"
NAME: Final = "vcjob-fault-npu-cm"
NODES_KEY: Final = "fault-node"
RETRIES_KEY: Final = "remain-retry-times"
NodeState: TypeAlias = Literal["NodeUnhealthy", "CardUnhealthy", "CardNetworkUnhealthy"]


class FaultyDevice(msgspec.Struct, frozen=True):
    """A faulty chip of a node; fields have the names of the format. Level and code are empty where unknown."""

    fault_type: Literal["CardUnhealthy", "CardNetworkUnhealthy"]
    npu_name: str
    fault_level: str = ""
    fault_handling: str = ""
    large_model_fault_level: str = ""
    fault_code: str = ""


class FaultyNode(msgspec.Struct, frozen=True):
    """A faulty node."""

    devices: list[FaultyDevice] = msgspec.field(name="FaultDeviceList")
    name: str = msgspec.field(name="NodeName")
    unhealthy: list[str] = msgspec.field(name="UnhealthyNPU")
    """Names of chips, ascending by id."""
    network_unhealthy: list[str] = msgspec.field(name="NetworkUnhealthyNPU")
    state: NodeState = msgspec.field(name="NodeHealthState")
    update_s: Int64 = msgspec.field(name="UpdateTime")
    """Time of the report, in seconds since 1970."""


class Retries(msgspec.Struct, frozen=True):
    """How often failed pods may still restart a job."""

    uid: str = msgspec.field(name="UUID", default="")
    """Of the owner of its PodGroup."""
    times: Int64 = msgspec.field(name="Times", default=0)


_RETRIES: Final = msgspec.json.Decoder(dict[str, Retries] | None)


def job_key(namespace: str, group: str) -> str:
    """Key of a job: its namespace and the name of its PodGroup."""
    return f"{namespace}/{group}"


def group_name(job: str, uid: str) -> str:
    """Name that Volcano and the Ascend operator give to the PodGroup of a job."""
    return f"{job}-{uid}"


def nodes_text(nodes: Iterable[FaultyNode]) -> str:
    """Value of :data:`NODES_KEY`, nodes by name; empty without any."""
    found = sorted(nodes, key=lambda node: node.name)
    return msgspec.json.encode(found).decode() if found else ""


def retries_text(retries: Mapping[str, Retries]) -> str:
    """Value of :data:`RETRIES_KEY` by :func:`job_key`; empty without any."""
    return msgspec.json.encode(retries, order="deterministic").decode() if retries else ""


def read_retries(text: str) -> dict[str, Retries]:
    """Counters in the value of :data:`RETRIES_KEY`.

    Raises:
        ReportError: It is not JSON, or has another form.
    """
    return decoded(text, _RETRIES, field=RETRIES_KEY) or {} if text.strip() else {}
