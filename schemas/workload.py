"""Workloads: jobs with the moments at which they come and the time that they run, for simulations."""

from schemas.facts import TopologySeen
from schemas.intake import JobRequest
from schemas.message import Part
from schemas.nodes import NodeDescription
from schemas.units import UnixMs


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
    """Nodes of a simulated cluster and the switches above them."""

    name: str
    nodes: list[NodeDescription]
    """By name."""
    topology: list[TopologySeen] = []
