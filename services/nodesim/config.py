"""Settings of the simulated cluster."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from berth.runtime.config import ServiceConfig


class NodesimConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of nodesim."""

    topology_file: Path
    """YAML file that describes the cluster; see :mod:`berth.formats.topology_file`."""
    run_default_s: Annotated[float, Meta(gt=0, le=31_536_000)] = 30.0
    """How long pods run whose job does not say."""
    terminating_s: Annotated[float, Meta(ge=0, le=3_600)] = 0.5
    """How long an evicted pod takes to go."""
    tick_s: Annotated[float, Meta(gt=0, le=60)] = 0.2
    """Longest sleep between two looks at the clock; pods end at most this late."""
    retry_wait_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    """First pause after a fact could not be published; it doubles up to ``retry_wait_max_s``."""
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    mirror_wait_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """How long the latest facts may take to be readable at the start."""
