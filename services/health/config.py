"""Settings of the health service."""

from typing import Annotated, Literal

from msgspec import Meta

from berth.runtime.config import ServiceConfig
from berth.runtime.kube.config import KubeConfig


class HealthConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the health service."""

    source: Literal["direct", "clusterd", "none"] = "direct"
    """Where health is read: ConfigMaps of device plug-ins and of nodes' agents, those of ClusterD, or none at all."""
    self_maintain_available_card: bool = True
    """Free chips are a node's chips minus those of its pods; off: only what the device plug-in itself lists as free."""
    stale_s: Annotated[float, Meta(ge=1, le=86_400)] = 600.0
    """A node whose report is older accepts no new work. Device plug-ins write at least every 300 s."""
    flap_hold_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0
    """A chip takes no new work for so long after the second fault within ``flap_quiet_s`` ends, and for twice as long
    after each further one ...; 0: at once, as the reference."""
    flap_hold_max_s: Annotated[float, Meta(ge=0, le=604_800)] = 3_600.0
    """... up to this."""
    flap_quiet_s: Annotated[float, Meta(ge=1, le=604_800)] = 3_600.0
    """After so long without a fault the earlier faults of a chip are forgotten."""
    gap_s: Annotated[float, Meta(ge=0, le=10)] = 0.05
    """Pause between two rounds of facts; what changes meanwhile is published together."""
    refresh_s: Annotated[float, Meta(ge=1, le=3_600)] = 300.0
    """Pause between two facts of a domain that differ only in the time of the last reports."""
    tick_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    """Period of checks of the clock."""
    mirror_wait_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """How long the latest facts may take to be readable at the start."""
    retry_wait_s: Annotated[float, Meta(gt=0, le=60)] = 0.25
    """First pause after a fact that could not be stored; it doubles ..."""
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """... up to this."""
    kube: KubeConfig = KubeConfig()
    """The cluster whose ConfigMaps are read; not used with source ``none``."""
