"""Settings about Kubernetes that several services share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta


class KubeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address, credentials and timeout of a connection to an API server."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {
        "list_timeout_s": "60 s",
        "page_size": "1000 objects",
        "watch_s": "420 s",
        "idle_s": "90 s",
        "backoff_max_s": "10 s",
        "connections": "256",
    }

    kubeconfig: Path | None = None
    """A kubeconfig; without it the service account of the pod, or outside of a pod the files in ``KUBECONFIG``."""
    context: Annotated[str, Meta(max_length=253)] = ""
    """Context of the kubeconfig; empty for the current one. Ignored with a service account."""
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Timeout of one request, read or write."""


class FaultObjectsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ConfigMaps with faults and restarts for other components.

    The same for all services that write them: one environment sets it for all.
    """

    CONSTANTS: ClassVar[Mapping[str, str]] = {"counters_namespace": "volcano-system", "reasons_namespace": "mindx-dl"}

    written_by: Literal["berth", "other"] = "other"
    """``berth``: summary and the binder write them; ``other``: another scheduler does, or nobody. Two writers overwrite
    each other."""
    other_writer_s: Annotated[int, Meta(ge=0, le=86_400)] = 300
    """The start is refused while another client has written one of these two within this time; 0: never."""
