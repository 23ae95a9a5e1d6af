"""Courses: what became of the jobs of a cell over a time, recorded or simulated; figures and pictures are made of them.

Times are milliseconds on the clock of the course. Numbers of chips count healthy chips of nodes that are there.
"""

import msgspec


class JobCourse(msgspec.Struct, frozen=True, gc=False):
    """What became of a job."""

    namespace: str
    name: str
    chips: int
    """Of all its pods."""
    pods: int
    priority: int
    asked_ms: int
    placed_ms: int = -1
    """When it was placed, the last time if there were several; -1 for never."""
    ended_ms: int = -1
    """When its chips were given back; -1 while it runs, or for never."""
    refused: str = ""
    """Code of the last refusal of a job that was rejected or waits at the end; empty else."""
    nodes: int = 0
    """Nodes of its placement."""
    leaves: int = 0
    """Leaf switches of its nodes with chips; 0 where none are known."""
    leaves_least: int = 0
    """Fewest leaf switches that can hold so many nodes."""
    superpods: int = 0
    superpods_least: int = 0
    left_ms: int = -1
    """When it was rejected, or taken back by its user before it was placed (then ``refused`` is empty); -1 else. A job
    that was never placed and has not left still waits at the end."""


class Moment(msgspec.Struct, frozen=True, gc=False):
    """Use of the cluster from a moment on, until the next one."""

    at_ms: int
    chips: int
    """Chips of nodes that are there, broken ones left out."""
    used: int
    waiting: int
    """Gangs that wait."""
    waiting_chips: int
    blocked: dict[str, int] = {}
    """Idle chips while a gang waits, by what keeps them from the first in the queue: ``partial`` (on nodes with too few for a
    pod), ``scattered`` (on nodes that would take a pod, but not enough of them), ``topology`` (enough nodes, but not below
    leaves or in SuperPoDs as asked), ``reserved``, ``behind`` and ``constraint`` (selector, taint, health, cpu or memory)."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Use of each node at a moment."""

    at_ms: int
    used: bytes
    """One byte a node, in the order of the course's ``nodes``: chips in use; 255 for a node that takes no work."""


class Timeline(msgspec.Struct, frozen=True):
    """What became of all jobs."""

    title: str
    """Such as ``as recorded`` or ``queue_policy=easy``."""
    settings: dict[str, str]
    """What it depends on, in words."""
    begin_ms: int
    end_ms: int
    jobs: list[JobCourse]
    """By the moment they were asked for, then by name."""
    moments: list[Moment]
    """Ascending, one for each change."""
    nodes: list[str] = []
    """By leaf switch, then by name."""
    node_chips: list[int] = []
    """Chips of each."""
    leaves: list[str] = []
    """Leaf switch of each; empty without."""
    frames: list[Frame] = []
    """Evenly over the time, a hundred or so."""
