"""Settings of the inventory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from berth.runtime.config import ServiceConfig
from berth.runtime.kube.config import KubeConfig
from berth.services.inventory.gangs.settings import GangSettings


class InventoryConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the inventory."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {
        "reports_wait_s": "30 s",
        "unseen_s": "5 s",
        "calls_at_once": "16",
        "call_tries_max": "8",
        "retry_wait_s": "0.25 s",
        "mirror_wait_s": "30 s",
    }

    kube: KubeConfig = KubeConfig()
    gangs: GangSettings = GangSettings()
    marks_file: Path | None = None
    """Keys that prove the marks of pods, as ``berth keys marks`` makes them; the binder has the same. Without it the
    marks count as they are: whoever may write pods may write them."""
    queues: bool = False
    """Whether Queues of Volcano are the queues of the cell. Set it together with ``decisions.queues`` of the
    dispatcher; without it persons declare queues (``berth queues apply``)."""
    settle_s: Annotated[float, Meta(ge=0, le=60)] = 0.2
    """How long a gang that is not known to be complete waits for more pods, and the least time between two facts about
    a large gang or about nodes."""
    kinds_retry_s: Annotated[float, Meta(gt=0, le=3_600)] = 30.0
    """How often a kind is looked for that the API server does not serve, such as PodGroups."""
    stranger_s: Annotated[float, Meta(ge=0, le=3_600)] = 10.0
    """How long a pod whose annotations name an unknown job waits for the verdict on the job; then its chips are
    adopted."""
    plugin_period_s: Annotated[float, Meta(gt=0, le=1_800)] = 5.0
    """Period of the device plug-ins (``listWatchPeriod``). Pods that need whole rings of a node wait at most two of
    them for the names of chips that other pods have."""
    event_apart_s: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    """Least time between two Events about one object that has something wrong."""
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Longest pause before something is tried again when the bus or the API server did not answer; the first is 0.25 s,
    and it doubles."""
