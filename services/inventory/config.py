"""Settings of the inventory."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from berth.runtime.config import ServiceConfig
from berth.runtime.kube.config import KubeConfig
from berth.services.inventory.gangs.settings import GangSettings


class InventoryConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the inventory."""

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
    reports_wait_s: Annotated[float, Meta(ge=0, le=3_600)] = 30.0
    """How long the API server may refuse the reports of device plug-ins, when nodes need them, before nodes are
    published without."""
    stranger_s: Annotated[float, Meta(ge=0, le=3_600)] = 10.0
    """How long a pod whose annotations name an unknown job waits for the verdict on the job; then its chips are
    adopted."""
    plugin_period_s: Annotated[float, Meta(gt=0, le=1_800)] = 5.0
    """Period of the device plug-ins (``listWatchPeriod``). Pods that need whole rings of a node wait at most two of
    them for the names of chips that other pods have."""
    unseen_s: Annotated[float, Meta(gt=0, le=3_600)] = 5.0
    """How long after its binding a pod may be unknown; then the pods of its namespace are listed."""
    event_apart_s: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    """Least time between two Events about one object that has something wrong."""
    calls_at_once: Annotated[int, Meta(ge=1, le=256)] = 16
    """Maximum number of concurrent calls to the API server, watches excluded."""
    call_tries_max: Annotated[int, Meta(ge=1, le=1_000)] = 8
    """Tries of a write to the API server that does not answer, before it is given up until something changes."""
    retry_wait_s: Annotated[float, Meta(gt=0, le=60)] = 0.25
    """First pause before something is tried again when the bus or the API server did not answer; it doubles ..."""
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """... up to this."""
    mirror_wait_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """How long the latest facts may take to be readable at the start."""
