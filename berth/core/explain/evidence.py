"""Evidence of an explanation: alternative nodes, holders of missing chips, events that would make room."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from berth.core.text import pluralize, ranges
from berth.schemas.units import UnixMs

LostBy = Literal["score", "name", "better", "taken", "reserved"]
"""Lower score; equal score and a later name; better than the chosen node (:class:`Basis` has the reason); better
until an earlier job or pod of the round took chips of it; better, but reservations count what is free there."""
EventKind = Literal[
    "next-round",
    "job-placed",
    "job-over",
    "scorer-answers",
    "topology-known",
    "job-ends",
    "hold-ends",
    "node-well",
    "nodes-come",
]
"""The next round; the job ahead is placed, or has ended or is cancelled; scorers of shards answer; the leaf switches
become known; a job releases its resources; places that are held for a job which starts anew are free; a node becomes
healthy, ready and schedulable; nodes are added."""
Clock = Callable[[UnixMs], str]
"""Formats a moment."""

_JOBS_SHOWN: Final = 4
_PART_WORDS: Final = {
    "affinity": "a worse affinity class",
    "health": "fewer chips that can be given",
    "unhealthy": "more unhealthy chips",
    "free": "more free chips",
    "sub-health": "it is sub-healthy",
    "preferred": "less of what the job prefers",
}


class Reserved(msgspec.Struct, frozen=True):
    """Chips of a node that are reserved for a job."""

    job: str
    """``namespace/name``."""
    ranks: list[int]
    """Ranks whose pods get them, ascending."""
    chips: list[int]
    """Ids, ascending; none for pods without chips."""
    until_ms: UnixMs
    """Until when at the latest, for a job that starts anew as a whole; 0: until the old pods of the ranks are gone."""


class NamedTwice(msgspec.Struct, frozen=True):
    """A chip that more than one pod names."""

    chip: int
    pods: list[str]
    """``namespace/pod`` of another scheduler, or ``namespace/job rank 3``; sorted."""


class Alternative(msgspec.Struct, frozen=True):
    """The best alternative node for a pod, and why it was not chosen."""

    node: str
    score: int
    free: int
    """Its chips that the pod could have used."""
    affinity: int
    lost_by: LostBy


class Candidate(msgspec.Struct, frozen=True):
    """A node that fits a pod, or did so earlier in the round, and why it was not chosen."""

    node: str
    score: int
    """For ``taken``: the score before that."""
    free: int
    """Its chips that the pod could have used; for ``taken``: the chips that are left."""
    affinity: int
    lost_by: LostBy
    part: str = ""
    """Part of the score with the largest difference: affinity, health, unhealthy, free, sub-health or preferred; empty
    when the score has no parts."""
    parts: dict[str, int] = {}
    """Parts of the score, by name, when it has any; it is their sum."""
    taken_by: list[str] = []
    """For ``taken``: jobs of the round as ``namespace/name``, or ranks of the job itself as ``rank 0``."""

    def words(self, score: int) -> str:
        """Why it was not chosen instead of a node with ``score``."""
        match self.lost_by:
            case "score":
                because = f": {_PART_WORDS[self.part]}" if self.part else ""
                return f"its score is lower by {score - self.score}{because}"
            case "name":
                return "equal; the first by name won"
            case "taken":
                return f"{', '.join(self.taken_by)} took it before"
            case "better":
                return "it is the better node"
            case "reserved":
                return "what is free there is reserved"


class Holder(msgspec.Struct, frozen=True):
    """A job that holds chips on some nodes."""

    job: str
    """``namespace/name``."""
    chips: int
    """Its chips there; a shared chip counts once for each job."""
    nodes: int = 1
    """Nodes there on which it holds chips."""
    since_ms: UnixMs = 0
    end_ms: UnixMs = 0
    """Expected end by its declared run time; 0 without one."""
    is_ending: bool = False
    """Its pods are being deleted."""
    reserved: int = 0
    """Those of its chips there that wait for a pod of it: it recovers from a fault."""

    def words(self, clock: Clock) -> str:
        """Name, chips, start and expected end."""
        words = f"{self.job} ({pluralize(self.chips, 'chip')}"
        if self.reserved:
            words += " reserved" if self.reserved == self.chips else f", {self.reserved:,} of them reserved"
        words += f" on {pluralize(self.nodes, 'node')}" if self.nodes > 1 else ""
        words += f", since {clock(self.since_ms)}" if self.since_ms else ""
        if self.is_ending:
            return f"{words}, being deleted)"
        return f"{words}, until about {clock(self.end_ms)})" if self.end_ms else f"{words})"


def holders_words(holders: Sequence[Holder], clock: Clock) -> str:
    """Holders of chips, as the end of a sentence; empty without holders."""
    if not holders:
        return ""
    more = len(holders) - _JOBS_SHOWN
    jobs = ", ".join(holder.words(clock) for holder in holders[:_JOBS_SHOWN])
    return f"; chips there are held by {jobs}{f' and {more:,} more' if more > 0 else ''}"


class NodesAlike(msgspec.Struct, frozen=True):
    """Nodes that a pod could go to now, or nodes that cannot take it for one reason."""

    reason: str
    """``fits``, or the first reason against them."""
    words: str
    """The reason as the end of a sentence about one node; empty where it fits."""
    nodes: list[str]
    """By name."""


class NearNode(msgspec.Struct, frozen=True):
    """A node that almost takes a pod."""

    node: str
    free: int
    reason: str
    words: str
    held_by: list[str]
    """Jobs that hold chips there, as ``namespace/name``."""
    holders: list[Holder]
    """The same jobs with the chips that they hold."""
    wrong: list[str]
    """Its problems: cordoned, not ready, unhealthy, health unknown."""


class NearDomain(msgspec.Struct, frozen=True):
    """A leaf switch, a SuperPoD or another part of the cluster that almost has room for a job."""

    kind: Literal["leaf", "superpod", "domain"]
    name: str
    nodes: int
    """Known nodes."""
    usable: int
    """Nodes that can take a pod."""
    pods: int
    """Pods of the task that these nodes can take."""
    lacks: int
    """Pods of the task for which there is no room here."""
    holders: list[Holder]
    """Jobs with chips on its other nodes, most chips first."""

    def words(self, clock: Clock) -> str:
        """The domain in a sentence."""
        kind = {"leaf": "leaf", "superpod": "SuperPoD", "domain": "domain"}[self.kind]
        words = f"Closest: {kind} {self.name}, {self.usable:,} of {pluralize(self.nodes, 'node')} can take a pod"
        words += f", room for {pluralize(self.pods, 'pod')}, {self.lacks} too few" if self.lacks else ""
        return f"{words}{holders_words(self.holders, clock)}."


class Event(msgspec.Struct, frozen=True):
    """A possible event that helps a waiting job."""

    kind: EventKind
    job: str = ""
    """``namespace/name`` of the job that ends or is ahead."""
    uid: str = ""
    attempt: int = 0
    nodes: int = 0
    """Nodes that the job holds, or that are held for it, or that are added."""
    chips: int = 0
    """Chips that it holds, or that are held for it."""
    since_ms: UnixMs = 0
    end_ms: UnixMs = 0
    """Expected end by its declared run time; 0 without one. Of held places: their deadline."""
    is_ending: bool = False
    """Its pods are already being deleted."""
    node: str = ""
    """Node that becomes available."""
    wrong: list[str] = []
    """Its problems: cordoned, not ready, unhealthy, health unknown."""
    product: str = ""
    """Product of the added nodes."""
    shards: list[int] = []

    def words(self, clock: Clock) -> str:
        """The event, as the end of a sentence that begins with ``when``."""
        are = "is" if self.nodes == 1 else "are"
        like = f" like those of {self.product}" if self.product else ""
        scorers = "scorer {} answers" if len(self.shards) == 1 else "scorers {} answer"
        words: dict[EventKind, str] = {
            "node-well": f"node {self.node} is available again (now {', '.join(self.wrong)})",
            "nodes-come": f"{pluralize(self.nodes, 'more node')}{like} {are} added",
            "scorer-answers": scorers.format(ranges(self.shards)),
            "job-placed": f"{self.job}, which is ahead of it, is placed",
            "job-over": f"{self.job}, which is ahead of it, has ended or is cancelled",
            "topology-known": "the leaf switches are known",
            "next-round": "the next round tries it again",
        }
        return words.get(self.kind) or self._end_words(clock)

    def _end_words(self, clock: Clock) -> str:
        size = f"{pluralize(self.nodes, 'node')}, {pluralize(self.chips, 'chip')}"
        if self.kind == "hold-ends":
            return f"the places held for {self.job} are free ({size}, at {clock(self.end_ms)} at the latest)"
        if self.is_ending:
            return f"{self.job} is gone ({size}, being deleted)"
        until = f", about {clock(self.end_ms)}" if self.end_ms else ""
        return f"{self.job} ends ({size}{until})"


class Way(msgspec.Struct, frozen=True):
    """Events after which there is room, in a total order. When it is minimal, none of them can be left out."""

    events: list[Event]
    at_ms: UnixMs = 0
    """When all events have happened, by declared run times; 0 when unknown."""
    is_minimal: bool = True


class Unblocking(msgspec.Struct, frozen=True):
    """Events after which a waiting job fits, found by planning it on the state after these events.

    Other waiting jobs are ignored; they may take the room first.
    """

    ways: list[Way]
    """Shortest first."""
    ends_help: bool = True
    """False: there is no room even after the end of all jobs that hold resources which it could use."""
    ends_over: int = 0
    """The ends of this many running jobs, those most likely to help, are not enough; 0 when fewer are."""
    is_whole: bool = True
    """False: the search stopped at its limit; there may be other or shorter ways."""


def unblocking_lines(unblocking: Unblocking, clock: Clock) -> list[str]:
    """Events that would make room, one sentence for each way."""
    lines = [_way_words(way, clock) for way in unblocking.ways]
    if not unblocking.ends_help:
        lines.append("No set of running jobs ending makes room.")
    if unblocking.ends_over:
        lines.append(f"The ends of the {unblocking.ends_over} running jobs most likely to help are not enough.")
    if not unblocking.is_whole:
        lines.append("The search stopped at its limit; there may be a shorter way.")
    return lines


_EVENTS_SHOWN: Final = 6


def _way_words(way: Way, clock: Clock) -> str:
    if len(way.events) == 1:
        event = way.events[0]
        if event.kind == "next-round":
            return "There is room now: the next round that tries it places it."
        if event.kind == "topology-known":
            return "It can be planned when the leaf switches are known."
        return f"There is room when {event.words(clock)}."
    parts = [event.words(clock) for event in way.events[:_EVENTS_SHOWN]]
    more = len(way.events) - len(parts)
    rest = f"; and {pluralize(more, 'more event')} like these" if more else ""
    until = f" (about {clock(way.at_ms)})" if way.at_ms else ""
    return f"There is room when {len(way.events)} things have happened{until}: {'; '.join(parts)}{rest}."
