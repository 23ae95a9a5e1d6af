"""Workloads for simulations: jobs with their arrival times and run times."""

from berth.schemas.intake import JobRequest
from berth.schemas.message import Part
from berth.schemas.nodes import NodeDescription
from berth.schemas.units import UnixMs


class PlannedJob(Part, frozen=True, gc=False):
    """A job of a workload."""

    request: JobRequest
    """Request as a user publishes it; its ``run_ms`` is the declared run time, 0 for none."""
    at_ms: UnixMs
    """Arrival; 0 is the start of the workload."""
    run_ms: UnixMs
    """Run time once it is placed."""
    cancel_ms: UnixMs
    """Time of its cancellation, on the scale of ``at_ms``; 0 for never."""


class Workload(Part, frozen=True):
    """Jobs by ``at_ms``, ties in the order of their source."""

    name: str
    jobs: list[PlannedJob]
    notes: list[str] = []
    """What the reader rounded, left out or assumed, a sentence each."""
    declared: int = 0
    """Jobs whose declared run time is that of their source."""


class ClusterPlan(Part, frozen=True):
    """Nodes of a simulated cluster; each names its leaf switch."""

    name: str
    nodes: list[NodeDescription]
    """In the order of their source, which is the order of the leaf switches."""
    level: str = ""
    """``single_layer`` or ``double_layer``, of the leaf switches; empty: the second."""
    places: int = 0
    """Most nodes below a leaf; 0: the nodes of the largest leaf."""
    notes: list[str] = []
    """What the reader left out, a sentence each."""
