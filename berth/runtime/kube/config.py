"""Settings of a connection to Kubernetes, shared by all services that connect to it."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta


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
