"""Settings about Kubernetes that several services share."""

from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

_NAMESPACE: Final = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Namespace: TypeAlias = Annotated[str, Meta(pattern=_NAMESPACE)]


class KubeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address, credentials and timeouts of a connection to an API server."""

    kubeconfig: Path | None = None
    """A kubeconfig; without it the service account of the pod, or outside of a pod the files in ``KUBECONFIG``."""
    context: Annotated[str, Meta(max_length=253)] = ""
    """Context of the kubeconfig; empty for the current one. Ignored with a service account."""
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Timeout of one request, read or write."""
    list_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 60.0
    """Timeout of one page of a list."""
    page_size: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """Objects in one page of a list."""
    watch_s: Annotated[float, Meta(ge=1, le=86_400)] = 420.0
    """Duration of a watch before it is renewed; each is up to a third shorter or longer."""
    idle_s: Annotated[float, Meta(gt=0, le=3600)] = 90.0
    """A watch without events for this long is renewed at its last version."""
    backoff_max_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """Longest pause between attempts of a reflector; the server may ask for a longer one."""
    connections: Annotated[int, Meta(ge=1, le=10_000)] = 256
    """Most concurrent connections, watches included."""


class FaultObjectsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ConfigMaps with faults and restarts for other components.

    The same for all services that write them: one environment sets it for all.
    """

    written_by: Literal["berth", "other"] = "other"
    """``berth``: summary and the binder write them; ``other``: another scheduler does, or nobody. Two writers overwrite
    each other."""
    counters_namespace: Namespace = "volcano-system"
    """Namespace of ``vcjob-fault-npu-cm``."""
    reasons_namespace: Namespace = "mindx-dl"
    """Namespace of ``job-reschedule-reason``."""
    other_writer_s: Annotated[int, Meta(ge=0, le=86_400)] = 300
    """The start is refused while another client has written one of these two within this time; 0: never."""
