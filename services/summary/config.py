"""Settings of the summary writer."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from berth.runtime.config import ServiceConfig
from berth.runtime.kube.config import FaultObjectsConfig, KubeConfig


class QueueStatusConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Status of the Queues of Volcano that are the queues of the cell."""

    write_state: bool = False
    """Whether summary writes the state of Queues, in place of Volcano's queue controller: an empty one becomes
    ``Open``, and ``Closing`` becomes ``Closed`` once no PodGroup names the Queue."""
    lease_namespace: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")] = "volcano-system"
    """Namespace of the Lease ``volcano`` of Volcano's scheduler. While that is held nothing of Queues is written."""


class SummaryConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the summary writer."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {
        "writes_at_once": "8",
        "retry_wait_s": "0.25 s",
        "tor_share_pause_s": "1 s",
    }

    kube: KubeConfig = KubeConfig()
    settle_s: Annotated[float, Meta(gt=0, le=60)] = 0.1
    """How long changes are gathered before summaries are made of them."""
    kept_s: Annotated[int, Meta(ge=0, le=86_400)] = 60
    """How long the summary of a job that is gone is kept before it is deleted."""
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Longest pause after a write that failed; the first is 0.25 s, and it doubles."""
    kinds_retry_s: Annotated[float, Meta(gt=0, le=3_600)] = 60.0
    """Pause between two looks for PodGroups where the server does not serve them."""
    tor_share_namespace: Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?\Z")] = "volcano-system"
    """Namespace of ``tor-share-cm``, which has the leaf switches under policy 2.0; empty: it is not written."""
    expected_starts_s: Annotated[int, Meta(ge=0, le=86_400)] = 60
    """Least time between two writes of the expected start of a PodGroup that waits; 0: it is not written."""
    fault_objects: FaultObjectsConfig = FaultObjectsConfig()
    queues: QueueStatusConfig = QueueStatusConfig()
