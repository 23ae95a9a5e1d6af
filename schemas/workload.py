"""Workloads: jobs with the moments at which they come and the time that they run, for simulations."""

from berth.schemas.intake import JobRequest
from berth.schemas.message import Part
from berth.schemas.nodes import NodeDescription
from berth.schemas.units import UnixMs


class PlannedJob(Part, frozen=True, gc=False):
    """A job of a workload."""

    request: JobRequest
    """As a user would publish it; its ``run_ms`` is what the user says of the run time, 0 for nothing."""
    at_ms: UnixMs
    """When it comes; 0 is the start of the workload."""
    run_ms: UnixMs
    """How long it runs once it is placed."""
    cancel_ms: UnixMs = 0
    """When its user takes it back, counted as ``at_ms``; 0 for never."""


class Workload(Part, frozen=True):
    """Jobs by ``at_ms``, ties in the order of their source."""

    name: str
    jobs: list[PlannedJob]
    notes: list[str] = []
    """What was rounded, left out or assumed when it was read, a sentence each."""


class ClusterPlan(Part, frozen=True):
    """Nodes of a simulated cluster, below leaf switches as each node says."""

    name: str
    nodes: list[NodeDescription]
    """In the order of their source, which is that of the leaf switches."""
    level: str = ""
    """``single_layer`` or ``double_layer``, of the leaf switches; empty: the second."""
    places: int = 0
    """Most nodes below a leaf; 0: as many as the fullest has."""
    notes: list[str] = []
    """What was left out when it was read, a sentence each."""
