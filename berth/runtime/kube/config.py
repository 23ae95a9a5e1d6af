"""Settings of a connection to Kubernetes, shared by the services that have one."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta


class KubeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the API server is, who we are, and how long to wait."""

    kubeconfig: Path | None = None
    """A kubeconfig; without it the service account of the pod, and outside of a pod the files in ``KUBECONFIG``."""
    context: Annotated[str, Meta(max_length=253)] = ""
    """Context of the kubeconfig; empty for its current one. Not used with a service account."""
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """How long one request may take, whether it reads or writes."""
    list_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 60.0
    """How long one page of a list may take."""
    page_size: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """Objects in one page of a list."""
    watch_s: Annotated[float, Meta(ge=1, le=86_400)] = 420.0
    """How long a watch lasts before it is asked for again; each one is up to a third shorter or longer."""
    idle_s: Annotated[float, Meta(gt=0, le=3600)] = 90.0
    """After so long a silence a watch is asked for again, from where it was."""
    backoff_max_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """Longest pause between attempts of a reflection; the server may ask for a longer one."""
    connections: Annotated[int, Meta(ge=1, le=10_000)] = 256
    """Most connections at a time, watches included."""
