"""Settings of the binder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from berth.runtime.config import ServiceConfig
from berth.runtime.kube.config import FaultObjectsConfig, KubeConfig


class BinderConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the binder."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {
        "retry_wait_s": "0.25 s",
        "mirror_wait_s": "30 s",
        "consume_wait_s": "60 s",
    }

    gangs_at_once: Annotated[int, Meta(ge=1, le=1_024)] = 16
    """Gangs that are bound or evicted at the same time."""
    answer_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """How long the cluster may take to answer for one gang."""
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Longest pause before a gang is tried again when the cluster or the bus did not answer; the first is 0.25 s, and
    it doubles. The binder never stops retrying: the chips are reserved, and only the cluster
    shows which pods are bound."""
    kube: KubeConfig | None = None
    """The Kubernetes cluster in which pods are bound; without it the simulated one on the bus."""
    marks_file: Path | None = None
    """Keys that prove the marks of pods, as ``berth keys marks`` makes them; the inventory has the same."""
    binds_at_once: Annotated[int, Meta(ge=1, le=1_024)] = 64
    """Maximum number of concurrent requests to the API server, over all gangs."""
    partial: Literal["undo", "leave"] = "undo"
    """A gang of which some pods cannot be bound: ``undo`` evicts the others and places it again, ``leave`` lets them
    run."""
    bind_give_up_s: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    """How long a binding that the API server refuses is tried again, before its gang is placed elsewhere. A gang stays
    as it is, and goes on trying, if one of its bound pods would not be made anew."""
    members_wait_s: Annotated[float, Meta(ge=0, le=3_600)] = 30.0
    """How long a placed gang may wait until there is a pod for each of its ranks."""
    one_at_a_time: bool = True
    """Of pods with equally many chips on one node, the next is bound once the device plug-in has served the one
    before."""
    volumes_timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 600.0
    """How long the claims of a placed gang may take to be bound, before the gang is placed elsewhere."""
    notices_per_s: Annotated[float, Meta(ge=0, le=1_000)] = 40.0
    """Pod conditions and Events written in a second; 0 writes none."""
    notice_again_s: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    """Pause before a sentence that differs in numbers alone is written for the same gang."""
    name_others: bool = False
    """Events and conditions of pods name jobs of other namespaces; without, one is ``a job of another namespace``."""
    fault_objects: FaultObjectsConfig = FaultObjectsConfig()
    """Of these the binder writes ``reset-config-<job>``, before pods are deleted."""
    fault_point: str = ""
    """For tests of crashes: dies at the n-th passing of a named point, ``point:n``."""
