"""Settings of the simulated cluster."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from berth.lab.nodesim.fault_plan import FaultPlanConfig
from berth.runtime.config import ServiceConfig
from berth.runtime.kube.config import KubeConfig


class AgentsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the agents of the nodes behave on an API server; without section ``kube`` nothing of it counts."""

    report_s: Annotated[float, Meta(gt=0, le=3_600)] = 1.0
    """Period of the device plug-ins: a change is reported at most so late."""
    unchanged_s: Annotated[float, Meta(gt=0, le=86_400)] = 300.0
    """How often a device plug-in repeats an unchanged report."""
    admit_s: Annotated[float, Meta(ge=0, le=600)] = 0.1
    """Time from a pod's binding to its admission by kubelet; pods bound meanwhile are admitted together."""
    start_s: Annotated[float, Meta(ge=0, le=3_600)] = 0.5
    """From kubelet's look to running containers."""
    run_for_ever: bool = False
    """Pods without a run time never end."""
    shuffle_allocate: bool = True
    """Kubelet admits pods that are due together in random order, as a real one may; otherwise in order of binding."""
    seed: int = 0
    """Of all choices that are not prescribed: kubelet's ids and order, ClusterD's chunks."""
    preset_virtual_devices: bool = True
    """A container that gets all chips of its node is given them without a check of annotations, as by default on real
    nodes."""
    reversed_device_ids: bool = False
    """Chips of ``huawei.com/npu`` nodes have device ids that differ from their numbers."""
    other_releases: bool = False
    """Nodes have agents of several releases, by their names: reports have fields of earlier and of later ones."""
    lease_s: Annotated[float, Meta(ge=0, le=600)] = 0.0
    """How often the Leases of the nodes are renewed; 0 for never."""
    clusterd: bool = False
    """Also write what ClusterD makes of the reports, ``cluster-info-*``."""
    clusterd_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    """How often ClusterD writes when nothing has changed."""
    reads_retries: bool = False
    """The Ascend operator leaves failed pods of jobs with ``fault-retry-times`` to the scheduler, and reads in
    ``vcjob-fault-npu-cm`` whether they restart or fail the job; otherwise it makes them anew by itself."""
    recovery: bool = False
    """Also play the recovery service of ClusterD: process recovery and hot switch."""
    recovery_wait_s: Annotated[float, Meta(gt=0, le=3_600)] = 270.0
    """How long a job may take to run again before its process recovery pauses."""
    hot_switch_wait_s: Annotated[float, Meta(gt=0, le=3_600)] = 60.0
    """How long a backup pod may take to run."""
    controllers: list[Literal["volcano", "ascend", "podgroup"]] = []
    """Controllers to play: Volcano's of Jobs, the Ascend operator, Volcano's of PodGroups for other pods."""
    controllers_s: Annotated[float, Meta(ge=0, le=60)] = 0.1
    """How long a controller takes at most from a change to what it writes then; drawn by the seed each time."""
    scheduler_names: list[str] = msgspec.field(default_factory=lambda: ["berth"])
    """The controllers manage the jobs and pods of these schedulers only, and of those none for which another controller
    has made the PodGroup or pods."""
    writes_at_once: Annotated[int, Meta(ge=1, le=1_000)] = 32
    """Most writes to the API server at the same time."""


class NodesimConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of nodesim."""

    kube: KubeConfig | None = None
    """Play the cluster on this API server; without the section its facts are published on the bus instead."""
    agents: AgentsConfig = AgentsConfig()
    fault_plan: FaultPlanConfig = FaultPlanConfig()
    """Faults at given and random times."""
    topology_file: Path
    """YAML file that describes the cluster; see :mod:`berth.formats.clusters.topology_file`."""
    run_default_s: Annotated[float, Meta(gt=0, le=31_536_000)] = 30.0
    """How long pods run whose job has no run time."""
    terminating_s: Annotated[float, Meta(ge=0, le=3_600)] = 0.5
    """How long an evicted pod takes to go."""
    tick_s: Annotated[float, Meta(gt=0, le=60)] = 0.2
    """Longest pause between two checks of the clock; pods end at most this late."""
    retry_wait_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    """First pause after a fact could not be published; it doubles up to ``retry_wait_max_s``."""
    retry_wait_max_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """Longest pause between two attempts."""
    mirror_wait_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """How long the latest facts may take to be readable at the start."""
