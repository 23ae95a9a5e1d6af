"""Stories as data: what a seed makes of a cluster, of its users, and of everything that breaks.

An event has a time and is possible in any state of the cell, so every part of a story is a story. That is how a failing
one is made shorter.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, Literal

import msgspec

from berth.schemas.refusal import Code
from tests.sim.cell import CellSettings
from tests.sim.worlds import CLUSTERS, COMMON, Cluster

HORIZON_S: Final = 60.0
"""Events happen within this time; then all that is broken is repaired."""
FIRST_S: Final = 2.0
REPLICATED: Final = 0.25
"""Share of the seeds whose streams have three replicas."""
UNSYNCED: Final = 0.2
"""Share of the seeds whose server does not sync each write."""
OTHER_RELEASES: Final = 0.3
"""Share of the seeds whose nodes have agents of several releases."""

SERVICES: Final = ("dispatcher-0", "dispatcher-1", "inventory", "health", "binder", "summary")
WEIGHTS: Final[dict[str, int]] = {
    "job": 40,
    "ascend": 12,
    "drain": 4,
    "pod": 6,
    "heavy": 3,
    "end": 8,
    "again": 5,
    "remove": 6,
    "cancel": 4,
    "request": 6,
    "rubbish": 2,
    "wrong": 10,
    "claim": 6,
    "unclaim": 2,
    "policy": 3,
    "break": 10,
    "cordon": 4,
    "relabel": 3,
    "annotate": 4,
    "leaves": 3,
    "stuck": 3,
    "storage": 2,
    "kill": 8,
    "blackout": 1,
    "fuse": 8,
    "point": 8,
    "restart": 3,
    "pause": 4,
    "cut": 5,
    "hold": 5,
    "deafen": 4,
    "unheard": 6,
    "consumers": 3,
    "lag": 3,
    "leaderless": 3,
    "stuck-lease": 1,
    "server": 1,
    "busy": 4,
    "failing": 4,
    "conflicts": 3,
    "denying": 2,
    "hanging": 2,
    "expire": 3,
    "blind": 4,
    "kube-down": 2,
    "clock": 2,
    "settings": 2,
    "power": 2,
    "backup": 0,
    "stranger": 0,
    "reject": 0,
    "mount": 0,
    "delete-stream": 1,
}
"""What may happen, and how often where everything does."""
OWNERS: Final = ("scale", "rollout", "rollout", "rename", "rename", "regroup", "regroup", "refuse")
"""What becomes of gangs in stories in which their owners are busy, see ``tests/sim/owners.py``."""
OWNERS_FROM: Final = 300
OWNERS_SHARE: Final = 0.5
"""Owners are busy in so many stories, from this seed on."""
STRANGERS: Final = 0.3
"""Share of the seeds whose nodes get pods of another scheduler, and in which kubelets reject pods."""
RIVALS: Final = ("doubt", "doubt", "rival", "rival", "stray")
"""What happens in stories in which the fences of the ledger are tried, see ``tests/sim/rivals.py``."""
CONTESTED: Final = 4
CONTESTED_FROM: Final = 1000
"""Fences are tried in one story of so many, from this seed on."""
RARE_POINTS: Final = ("mark.before", "mark.after")
"""Fault points that are so seldom passed that an event hardly ever meets one."""
RARE_FROM: Final = 100
"""From this seed on, a process dies at one of them in each story in which ranks recover."""
QUEUES_SHARE: Final = 0.25
"""Share of the seeds that have queues."""
QUEUES: Final = ("queue", "queue", "queue", "requeue", "tenant", "tenant", "level", "source")
"""What happens in stories with queues, see ``tests/sim/queues.py``."""
CROWD: Final = ("job", "job", "ascend", "pod")
"""What more users do in some of these stories, so that more of them wait."""
VERBS: Final = tuple(verb for verb, weight in WEIGHTS.items() for _ in range(weight))
USERS: Final = (
    "job", "ascend", "pod", "heavy", "end", "again", "remove", "cancel", "request", "rubbish", "drain", "wrong",
    "claim", "unclaim", "policy", "annotate",
)  # fmt: skip
UNREACHED: Final[Mapping[Code, str]] = {
    "undecodable": "nothing gives it: a message that does not decode is a dead letter, no job has it",
    "internal": "an error of Berth set the gang aside",
}
"""Refusals that must not occur, and why."""


class Event(msgspec.Struct, frozen=True):
    """Something that happens; what the numbers mean depends on ``verb``.

    Attributes:
        at_s: When.
        verb: One of :data:`WEIGHTS`.
        one: Who.
        two: What.
        for_s: How long.
    """

    at_s: float
    verb: str
    one: int = 0
    two: int = 0
    for_s: float = 1.0

    def __str__(self) -> str:
        return f"{self.at_s:8.3f} s {self.verb} {self.one} {self.two} for {self.for_s:.2f} s"

    @property
    def dice(self) -> Random:
        """Chance of its own, for what has more sides than the numbers."""
        return Random(f"{self.verb} {self.one} {self.two} {self.for_s}")  # noqa: S311  # a simulation


_PREEMPTS: Final = 3


class Story(msgspec.Struct, frozen=True):
    """A cluster, the settings of the services, and events in order of time."""

    kind: int
    settings: CellSettings
    events: tuple[Event, ...]
    queues: Literal["", "volcano", "berth"] = ""
    """Who declares queues: objects of Volcano, or ``berth queues``; empty: nobody."""

    def only(self, kept: Sequence[int]) -> "Story":
        """A part of it, by the numbers of the events."""
        return msgspec.structs.replace(self, events=tuple(self.events[number] for number in kept))

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        return CLUSTERS[self.kind]

    @property
    def topology(self) -> str:
        """Text of the topology file."""
        return self.cluster.topology


def draw(seed: int) -> Story:
    """The story of a seed."""
    chance = Random(f"{seed} story")  # noqa: S311  # a simulation
    kind = chance.randrange(COMMON) if chance.random() < 0.4 else chance.randrange(len(CLUSTERS))
    settings = CellSettings(
        shards=chance.choice((0, 0, 1, 2, 3)),
        dispatchers=chance.choice((1, 2, 2)),
        decisions={**CLUSTERS[kind].decisions, **_decisions(chance)},
        faults=_faults(chance),
        snapshot_records=chance.choice((10, 20, 50)),
        agents=_agents(chance) | ({"other_releases": True} if _has_other_releases(seed) else {}),
        binder=_binder(chance),
        replicas=3 if _has_replicas(seed) else 1,
        sync="default" if _is_unsynced(seed) else "always",
        shape_s=chance.choice((0.0, 0.02, 0.1)),
    )
    # Not everything happens in every story: what is rare would never be alone with what is common.
    troubles = [verb for verb in VERBS if verb not in USERS and _is_in(seed, verb)] or ["kill"]
    wishes = [verb for verb in VERBS if verb in USERS]
    drawn = [chance.choice(wishes) for _ in range(chance.randrange(8, 26))]
    drawn += [chance.choice(troubles) for _ in range(chance.randrange(6, 32))]
    if settings.sync != "always":
        drawn += ["backup"] * 5 + ["power"] * chance.choice((1, 1, 2))
    if has_strangers(seed):
        drawn += ["stranger"] * 5 + ["reject"] * 2 + ["mount"] * 4
    if _is_contested(seed):
        drawn += [chance.choice(RIVALS) for _ in range(chance.randrange(6, 16))]
    events = [_event(chance, verb) for verb in drawn]
    if _has_busy_owners(seed):
        events += _of_owners(seed)
        settings.agents["controllers_s"] = chance.choice((0.0, 0.3, 2.0))
    source: Literal["", "volcano", "berth"] = ""
    if has_queues(seed):
        source, level, more = _of_queues(seed)
        events += more
        decisions = {**settings.decisions, "queues": level}
        settings = msgspec.structs.replace(settings, decisions=decisions, queues=source == "volcano")
    if has_preemption(seed):
        decisions = {**settings.decisions, "preempt": 2, "evictions_per_hour": seed % 3, "preempt_force": seed % 5 > 0}
        settings = msgspec.structs.replace(settings, decisions=decisions, gangs={**settings.gangs, "preempt": True})
    events.sort(key=lambda event: event.at_s)
    return Story(kind, settings, tuple(events), source)


def _decisions(chance: Random) -> dict[str, Any]:
    """Settings of decisions; most stories have most of the defaults."""
    found: dict[str, Any] = {"queue_policy": chance.choice(("skip", "skip", "fifo", "easy", "conservative"))}
    if found["queue_policy"] in {"easy", "conservative"}:
        found |= {"reserve_chips": chance.choice((8, 16, 64)), "reserve_depth": chance.choice((1, 2, 16))}
        found["unknown_run_ms"] = chance.choice((5_000, 60_000))
    found["strict_product_support"] = chance.random() < 0.3
    rare: dict[str, tuple[Any, ...]] = {
        "strict_job_shape": (False,),
        "strict_label_values": (False,),
        "health_first": (True,),
        "reference_parity": (True,),
        "shared_tor_num": (1,),
        "attempts_max": (1, 2),
        "round_gangs_max": (1, 2),
        "round_bytes_max": (10_000,),
        "tombstone_after_ms": (0, 2_000, 15_000),
        "waiting_jobs_max": (3,),
        "needs_health": (False,),
    }
    return found | {name: chance.choice(values) for name, values in rare.items() if chance.random() < 0.1}


def _faults(chance: Random) -> dict[str, Any]:
    if chance.random() < 0.4:
        return {}
    found: dict[str, Any] = {"plan_before_delete": chance.random() < 0.5}
    rare: dict[str, tuple[Any, ...]] = {
        "fault_wait_ms": (0, 5_000),
        "hold_places_ms": (0, 5_000),
        "fault_settle_ms": (0, 2_000),
        "grace_over_ms": (2_000, 10_000),
        "not_ready_ms": (3_000,),
        "restarts_at_once": (1,),
        "restart_share_percent": (100,),
    }
    return found | {name: chance.choice(values) for name, values in rare.items() if chance.random() < 0.25}


def _agents(chance: Random) -> dict[str, Any]:
    """How the cluster below behaves."""
    found: dict[str, Any] = {}
    if chance.random() < 0.3:
        found |= {"recovery": True, "recovery_wait_s": chance.choice((3.0, 20.0)), "hot_switch_wait_s": 8.0}
    if chance.random() < 0.2:
        found |= {"clusterd": True, "clusterd_s": 3.0}
    if chance.random() < 0.25:
        found["reads_retries"] = True
    return found


def _binder(chance: Random) -> dict[str, Any]:
    rare: dict[str, tuple[Any, ...]] = {
        "partial": ("leave",),
        "gangs_at_once": (1,),
        "binds_at_once": (1,),
        "members_wait_s": (0.0, 2.0),
        "volumes_timeout_s": (2.0, 30.0),
    }
    return {name: chance.choice(values) for name, values in rare.items() if chance.random() < 0.12}


def _event(chance: Random, verb: str) -> Event:
    return Event(
        round(FIRST_S + chance.random() * (HORIZON_S - FIRST_S), 3),
        verb,
        chance.randrange(1000),
        chance.randrange(1000),
        round(chance.choice((0.3, 2.0, 8.0, 20.0)) * (0.2 + chance.random()), 3),
    )


def _is_contested(seed: int) -> bool:
    return seed >= CONTESTED_FROM and seed % CONTESTED == 0 and not _is_unsynced(seed)


def has_strangers(seed: int) -> bool:
    """Whether the nodes of a seed get pods of another scheduler, and kubelets reject pods."""
    return Random(f"{seed} strangers").random() < STRANGERS and not _is_contested(seed)  # noqa: S311  # a simulation


def has_preemption(seed: int) -> bool:
    """Whether gangs end for others in the story of a seed."""
    return seed % 5 == _PREEMPTS


def has_queues(seed: int) -> bool:
    """Whether somebody declares queues in a seed."""
    return Random(f"{seed} queues").random() < QUEUES_SHARE  # noqa: S311  # a simulation


def _of_queues(seed: int) -> tuple[Literal["volcano", "berth"], int, list[Event]]:
    """Who declares queues, what they do at the beginning, and what becomes of them, whatever else happens."""
    chance = Random(f"{seed} tree")  # noqa: S311  # a simulation
    source: Literal["volcano", "berth"] = "volcano" if chance.random() < 0.6 else "berth"  # a share
    level = chance.choice((0, 1, 1, 2, 2, 2))
    drawn = [chance.choice(QUEUES) for _ in range(chance.randrange(8, 30))]
    drawn += [chance.choice(CROWD) for _ in range(chance.choice((0, 6, 14)))]
    return source, level, [_event(chance, verb) for verb in drawn]


def _is_unsynced(seed: int) -> bool:
    """Whether the bus's server of a seed acknowledges what it may still lose with the power."""
    return Random(f"{seed} sync").random() < UNSYNCED  # noqa: S311  # a simulation


def _has_replicas(seed: int) -> bool:
    """Whether dispatchers of a seed look after a stream of leases that no server leads."""
    return Random(f"{seed} replicas").random() < REPLICATED  # noqa: S311  # a simulation


def _has_other_releases(seed: int) -> bool:
    """Whether the reports of some nodes of a seed have the fields of other releases."""
    return Random(f"{seed} releases").random() < OTHER_RELEASES  # noqa: S311  # a simulation


def _is_in(seed: int, verb: str) -> bool:
    return Random(f"{seed} {verb}").random() < 0.4  # noqa: S311  # a simulation


def _of_owners(seed: int) -> list[Event]:
    """What owners of gangs do, whatever else happens."""
    chance = Random(f"{seed} owners")  # noqa: S311  # a simulation
    return [_event(chance, chance.choice(OWNERS)) for _ in range(chance.randrange(4, 16))]


def _has_busy_owners(seed: int) -> bool:
    is_drawn = Random(f"{seed} busy").random() < OWNERS_SHARE  # noqa: S311  # a simulation
    return seed >= OWNERS_FROM and is_drawn and not _is_contested(seed)
