"""Settings of the gang resolver."""

from typing import Annotated

import msgspec
from msgspec import Meta


class GangSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pods become job requests, and PodGroups are let in."""

    scheduler_names: Annotated[tuple[str, ...], Meta(min_length=1)] = ("berth",)
    """Pods with one of these in ``schedulerName`` become job requests."""
    vanished_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """A request is taken back when its pods have been gone for so long."""
    retry_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """Pause before pods whose request failed are requested again; it doubles ..."""
    retry_max_s: Annotated[float, Meta(gt=0, le=86_400)] = 600.0
    """... up to this."""
    look_again_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """How often the owner of a gang is read again while the gang waits for pods or to be resumed."""
    force_enqueue: bool = True
    """A PodGroup is let in as soon as its chips are free; false: cpu and memory must be free too, next to what others
    claim."""
    claim_s: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    """A PodGroup that could not start for so long is sent back to Pending; 0: never."""
    group_status_s: Annotated[float, Meta(ge=0, le=3_600)] = 5.0
    """Least time between two writes of the counts and messages of one PodGroup; a change of phase does not wait."""
    groups_without_scheduler: bool | None = None
    """Whether Berth admits PodGroups whose scheduler neither a pod nor the owner names; without a value only if
    ``volcano`` is among ``scheduler_names``."""
