"""Settings of the gang resolver."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta


class GangSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pods become job requests, and how PodGroups are admitted."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {"retry_max_s": "600 s", "group_status_s": "0.5 s"}

    scheduler_names: Annotated[tuple[str, ...], Meta(min_length=1)] = ("berth",)
    """Pods with one of these values in ``schedulerName`` become job requests."""
    vanished_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """A request without pods is withdrawn after this time if its owner still exists; otherwise at once."""
    retry_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """Pause before pods whose request failed are requested again; it doubles with each failure, up to 600 s."""
    look_again_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """How often the owner of a gang is read again while the gang waits for pods or is suspended."""
    force_enqueue: bool = True
    """A PodGroup is admitted when its chips are free; false: CPU and memory must be free too, beside other claims."""
    claim_s: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    """A PodGroup that could not start for this long goes back to Pending; 0: never."""
    preempt: bool = False
    """A PodGroup is also admitted where chips are free once PodGroups of lower priority have ended, and
    PodDisruptionBudgets are read; for cells whose dispatcher has ``decisions.preempt``."""
    name_others: bool = False
    """Conditions of PodGroups name jobs of other namespaces; without, these are ``a job of another namespace``."""
    groups_without_scheduler: bool | None = None
    """Whether Berth admits PodGroups for which neither a pod nor the owner names the scheduler; without a value only if
    ``volcano`` is among ``scheduler_names``."""

    @property
    def takes_unknown(self) -> bool:
        """Whether a PodGroup is admitted for which nothing names the scheduler."""
        configured = self.groups_without_scheduler
        return "volcano" in self.scheduler_names if configured is None else configured
