"""Settings of the binder."""

from typing import Annotated

from msgspec import Meta

from berth.runtime.config import ServiceConfig


class BinderConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the binder."""

    gangs_at_once: Annotated[int, Meta(ge=1, le=1_024)] = 16
    """Gangs that are bound or evicted at the same time."""
    answer_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """How long the cluster may take to answer for one gang."""
    retry_wait_s: Annotated[float, Meta(gt=0, le=60)] = 0.25
    """First pause before a gang is tried again when the cluster or the bus did not answer; it doubles ..."""
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """... up to this. The binder does not give up: the chips are reserved, and only the cluster knows."""
    mirror_wait_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """How long the latest facts may take to be readable at the start."""
