"""Settings of the health service."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from berth.runtime.config import ServiceConfig
from berth.runtime.kube.config import KubeConfig


class HealthConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the health service."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {
        "flap_hold_max_s": "3600 s",
        "flap_quiet_s": "3600 s",
        "gap_s": "0.05 s",
        "refresh_s": "300 s",
        "mirror_wait_s": "30 s",
        "retry_wait_s": "0.25 s",
    }

    source: Literal["direct", "clusterd", "none"] = "direct"
    """Where health is read: ConfigMaps of device plug-ins and of nodes' agents, those of ClusterD, or none at all."""
    self_maintain_available_card: bool = True
    """Free chips are a node's chips minus those of its pods; off: only what the device plug-in itself lists as free."""
    stale_s: Annotated[float, Meta(ge=1, le=86_400)] = 600.0
    """A node whose report is older accepts no new work. Device plug-ins write at least every 300 s."""
    flap_hold_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0
    """A chip takes no new work for so long after the second fault within an hour ends, and for twice as long after
    each further one, up to an hour; 0: at once, as the reference."""
    tick_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    """Period of checks of the clock."""
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Longest pause after a fact that could not be stored; the first is 0.25 s, and it doubles."""
    kube: KubeConfig = KubeConfig()
    """The cluster whose ConfigMaps are read; not used with source ``none``."""
