"""Grounds of an explanation: other nodes that a pod could have had, who holds what is missing, what would help. Data and words."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from berth.core.explain.text import pluralize, ranges
from berth.schemas.units import UnixMs

LostBy = Literal["score", "name", "better", "taken"]
"""Lower score; equal score and a later name; it is the better one: see ``Basis`` for what can make it so; it was better until an
earlier job or pod of the round took of it."""
EventKind = Literal[
    "next-round",
    "job-placed",
    "job-over",
    "scorer-answers",
    "topology-known",
    "job-ends",
    "node-well",
    "nodes-come",
]
"""The next round; the job that is ahead gets its nodes, or has ended or is taken back; scorers of shards answer; the leaf switches become known; a job
gives back what it holds; a node is well, ready and open to work; more nodes come."""
Clock = Callable[[UnixMs], str]
"""How a moment is written."""

_JOBS_TOLD: Final = 4
_PART_WORDS: Final = {
    "affinity": "a worse affinity class",
    "health": "fewer chips that can be given",
    "unhealthy": "more unhealthy chips",
    "free": "more free chips",
}


class Rival(msgspec.Struct, frozen=True):
    """The best other node for a pod, and why it was not taken."""

    node: str
    score: int
    free: int
    """Chips there that the pod could have used."""
    affinity: int
    lost_by: LostBy


class Candidate(msgspec.Struct, frozen=True):
    """A node that a pod could have had, or could have had earlier in the round, and why it did not win."""

    node: str
    score: int
    """For ``taken`` the one before it was taken."""
    free: int
    """Chips there that the pod could have used; for ``taken`` those that are left."""
    affinity: int
    lost_by: LostBy
    part: str = ""
    """Part of the score that made most of the difference: affinity, health, unhealthy or free; empty where the score has no parts."""
    parts: dict[str, int] = {}
    """What each part adds to the score, where the score has parts."""
    taken_by: list[str] = []
    """For ``taken``: jobs of the round as ``namespace/name``, or ranks of the job itself as ``rank 0``."""

    def words(self, score: int) -> str:
        """Why it did not win against a node with ``score``."""
        match self.lost_by:
            case "score":
                because = f": {_PART_WORDS[self.part]}" if self.part else ""
                return f"its score is lower by {score - self.score}{because}"
            case "name":
                return "equal score, and its name comes later"
            case "taken":
                return f"{', '.join(self.taken_by)} took it before"
            case "better":
                return "it would be the better one"


class Holder(msgspec.Struct, frozen=True):
    """A job that holds chips on some nodes."""

    job: str
    """``namespace/name``."""
    chips: int
    """Its chips there; those that share a chip count it each."""
    nodes: int = 1
    """Nodes there on which it has them."""
    since_ms: UnixMs = 0
    end_ms: UnixMs = 0
    """When it ends by the run time that it declared; 0 when it declared none."""
    is_ending: bool = False
    """Its pods are being deleted."""

    def words(self, clock: Clock) -> str:
        """Name, chips, and since and until when."""
        words = f"{self.job} ({pluralize(self.chips, 'chip')}"
        words += f" on {pluralize(self.nodes, 'node')}" if self.nodes > 1 else ""
        words += f", since {clock(self.since_ms)}" if self.since_ms else ""
        if self.is_ending:
            return f"{words}, being deleted)"
        return f"{words}, until about {clock(self.end_ms)})" if self.end_ms else f"{words})"


def holders_words(holders: Sequence[Holder], clock: Clock) -> str:
    """Who holds chips, as the end of a sentence; empty for nobody."""
    if not holders:
        return ""
    more = len(holders) - _JOBS_TOLD
    jobs = ", ".join(holder.words(clock) for holder in holders[:_JOBS_TOLD])
    return f"; chips there are held by {jobs}{f' and {more} more' if more > 0 else ''}"


class NearNode(msgspec.Struct, frozen=True):
    """A node that lacks little."""

    node: str
    free: int
    reason: str
    words: str
    held_by: list[str] = []
    """Jobs that hold chips there, as ``namespace/name``."""
    holders: list[Holder] = []
    """The same jobs, with what they hold there."""
    wrong: list[str] = []
    """What is the matter with it: cordoned, not ready, unhealthy, health unknown."""


class NearDomain(msgspec.Struct, frozen=True):
    """A leaf switch, a SuperPoD or another part of the cluster that comes close to having room for a job."""

    kind: Literal["leaf", "superpod", "domain"]
    name: str
    nodes: int
    """Nodes that are known."""
    usable: int
    """Nodes that can take a pod."""
    pods: int
    """Pods of the task that they can take."""
    lacks: int
    """Pods of the job for which there is no room here, as far as the task's pods go."""
    holders: list[Holder] = []
    """Jobs with chips on its other nodes, those with most of them first."""

    def words(self, clock: Clock) -> str:
        """The domain in a sentence."""
        kind = {"leaf": "leaf", "superpod": "SuperPoD", "domain": "domain"}[self.kind]
        words = f"Closest: {kind} {self.name}, {self.usable} of {pluralize(self.nodes, 'node')} can take a pod"
        words += f", room for {pluralize(self.pods, 'pod')}, {self.lacks} too few" if self.lacks else ""
        return f"{words}{holders_words(self.holders, clock)}."


class Event(msgspec.Struct, frozen=True):
    """Something that may happen and would help a job that waits."""

    kind: EventKind
    job: str = ""
    """``namespace/name`` of the job that ends or is ahead."""
    uid: str = ""
    attempt: int = 0
    nodes: int = 0
    """Nodes that the job holds, or that come."""
    chips: int = 0
    """Chips that it holds."""
    since_ms: UnixMs = 0
    end_ms: UnixMs = 0
    """When it ends by the run time that it declared; 0 when it declared none."""
    is_ending: bool = False
    """Its pods are being deleted already."""
    node: str = ""
    """Node that becomes well."""
    wrong: list[str] = []
    """What is the matter with it: cordoned, not ready, unhealthy, health unknown."""
    product: str = ""
    """Product of the nodes that come."""
    shards: list[int] = []

    def words(self, clock: Clock) -> str:
        """What is to happen, as the end of a sentence that begins with ``when``."""
        comes = "comes" if self.nodes == 1 else "come"
        like = f" like those of {self.product}" if self.product else ""
        scorers = "scorer {} answers" if len(self.shards) == 1 else "scorers {} answer"
        words: dict[EventKind, str] = {
            "node-well": f"node {self.node} is well again (now {', '.join(self.wrong)})",
            "nodes-come": f"{pluralize(self.nodes, 'more node')}{like} {comes}",
            "scorer-answers": scorers.format(ranges(self.shards)),
            "job-placed": f"{self.job}, which goes before it, is placed",
            "job-over": f"{self.job}, which goes before it, has ended or is taken back",
            "topology-known": "the leaf switches are known",
            "next-round": "the next round tries it again",
        }
        return words.get(self.kind) or self._end_words(clock)

    def _end_words(self, clock: Clock) -> str:
        size = f"{pluralize(self.nodes, 'node')}, {pluralize(self.chips, 'chip')}"
        if self.is_ending:
            return f"{self.job} is gone ({size}, being deleted)"
        until = f", about {clock(self.end_ms)}" if self.end_ms else ""
        return f"{self.job} ends ({size}{until})"


class Way(msgspec.Struct, frozen=True):
    """Events after all of which there is room, in a total order. Without any one of them there is none, if it is minimal."""

    events: list[Event]
    at_ms: UnixMs = 0
    """When all of it has happened, by declared run times; 0 when that is not known."""
    is_minimal: bool = True


class Unblocking(msgspec.Struct, frozen=True):
    """What would give a job that waits its nodes, found by planning it on what the cluster would be then.

    Other jobs that wait may be quicker: no way looks at them.
    """

    ways: list[Way] = []
    """The shortest first."""
    ends_help: bool = True
    """False: there is no room even after all jobs have ended that hold something it could use."""
    ends_over: int = 0
    """The ends of so many running jobs, those nearest to helping, are not enough; 0 where less is."""
    is_whole: bool = True
    """False: the search was broken off, and there may be better ways or some where none is told."""


def unblocking_lines(told: Unblocking, clock: Clock) -> list[str]:
    """What would help, one sentence an entry."""
    lines = [_way_words(way, clock) for way in told.ways]
    if not told.ends_help:
        lines.append("No set of running jobs ending makes room.")
    if told.ends_over:
        lines.append(f"The ends of the {told.ends_over} running jobs that are nearest to helping are not enough.")
    if not told.is_whole:
        lines.append("The search for what would help was broken off; there may be a shorter way.")
    return lines


_EVENTS_TOLD: Final = 6


def _way_words(way: Way, clock: Clock) -> str:
    if len(way.events) == 1:
        event = way.events[0]
        if event.kind == "next-round":
            return "There is room now: the next round that looks at it places it."
        if event.kind == "topology-known":
            return "It can be planned when the leaf switches are known."
        return f"There is room when {event.words(clock)}."
    parts = [event.words(clock) for event in way.events[:_EVENTS_TOLD]]
    more = len(way.events) - len(parts)
    rest = f"; and {pluralize(more, 'more event')} like these" if more else ""
    until = f" (about {clock(way.at_ms)})" if way.at_ms else ""
    return f"There is room when {len(way.events)} things have happened{until}: {'; '.join(parts)}{rest}."
