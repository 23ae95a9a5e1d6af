"""Decisions on histories of the fuzzer's worlds, each drawn from a seed and lived through under several policies.

Way, settings and steps have each their own chance, so that a choice more or less of one leaves the others as they are.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from berth.core.scheduling.turn import MissingShards, Recorded
from berth.core.state.internal_errors import SetAside
from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Round
from berth.schemas.recording import Entry
from tests.decisions.text import line_of_job, lines_of
from tests.fuzz.breakage import breakable
from tests.fuzz.families import LEVELS
from tests.fuzz.shard_check import Shards
from tests.fuzz.steps import Step, Way, draw_steps, draw_way
from tests.fuzz.world import World

POLICIES: Final = ("skip", "easy", "fifo", "conservative")
SHARDS: Final = (1, 3, 8)
_TIMES: Final[dict[str, tuple[int, ...]]] = {
    "grace_over_ms": (2_000, 5_000),
    "fault_wait_ms": (0, 3, 40),
    "not_ready_ms": (0, 1, 20),
    "fault_settle_ms": (0, 1, 5),
    "restarts_at_once": (1, 2, 16),
    "restart_share_percent": (1, 50, 100),
    "hold_places_ms": (0, 40, 5_000),
}
_ESCALATIONS: Final = ((1, 4, 9), (3, 8, 30), (3_000, 6_000, 12_000))


class Listener:
    """Writes down what is decided.

    Args:
        shards: Shards that decide beside it; None for none.
    """

    def __init__(self, shards: Shards | None) -> None:
        self.lines: list[str] = []
        self.world: World
        self._shards = shards

    def fact(self, entry: Entry) -> None:
        """A fact was stored and applied."""
        if self._shards is not None:
            self._shards.hear(entry)
        if entry.subject.split(".")[3] == "job":
            self.lines.append(line_of_job(decode(entry.data, JobSeen)))

    def opened(
        self, at_ms: int, turn: Recorded | None, missing_shards: MissingShards, set_aside: Sequence[SetAside]
    ) -> None:
        """A turn was opened, and decided."""
        del at_ms
        aside = (*set_aside, *(turn.set_aside if turn is not None else ()))
        self.lines += [f"set aside {len(aside)}"] if aside else []
        if turn is None or self._shards is None or not turn.opening.asks or missing_shards.missing:
            return
        other = self._shards.record(self.world.seat, turn.opening, missing_shards)
        theirs, ours = list(lines_of(other)), list(lines_of(turn.round))
        if theirs != ours:
            self.lines += [f"{self._shards.count} shards: {line}" for line in theirs]

    def taken_back(self) -> None:
        """What was decided was not stored."""
        self.lines.append("taken back")

    def stored(self, entry: Entry, record: Round | None) -> None:
        """A record was stored and adopted."""
        if self._shards is not None:
            self._shards.hear(entry)
        self.lines += lines_of(record) if record is not None else ["another record"]


def histories(first: int, count: int) -> Iterator[tuple[str, list[str]]]:
    """Name and lines of each history: every seed under ``skip``, under ``easy`` and, in turn, under another policy."""
    for seed in range(first, first + count):
        way, steps = drawn(seed)
        for policy in (*POLICIES[:2], POLICIES[2 + seed % 2]):
            shards = SHARDS[seed // 3 % len(SHARDS)] if seed % 3 == POLICIES.index(policy) % 3 else 0
            yield f"seed {seed} {policy}", lived(way, steps, policy, shards)


def drawn(seed: int) -> tuple[Way, tuple[Step, ...]]:
    """A cell and what happens in it; its settings lack the policy."""
    way = draw_way(_chance("way", seed))
    chance = _chance("cell", seed)
    epochs = [_settings(way, chance)]
    if chance.random() < 0.3:
        epochs.append(_settings(way, chance))
    way = msgspec.structs.replace(
        way,
        nodes=chance.choice((4, 6, 8, 12, 16)),
        groups=chance.choice((1, 2, 3, 4)),
        shards=chance.choice((1, 2, 3, 8)),
        settings=tuple(epochs),
    )
    return way, draw_steps(way, _chance("steps", seed))


def lived(way: Way, steps: Sequence[Step], policy: str, shards: int) -> list[str]:
    """Lines of a history under a policy; beside it so many shards decide."""
    listener = Listener(Shards(shards) if shards else None)
    settings = tuple(fields | {"queue_policy": policy} for fields in way.settings)
    world = World(msgspec.structs.replace(way, settings=settings), listener, Counter())
    listener.world = world
    with breakable() if "broken" in way.traits else contextlib.nullcontext():
        world.begin()
        world.live(steps)
        world.settle()
    return listener.lines


def _settings(way: Way, chance: random.Random) -> dict[str, Any]:
    """Fields of an epoch that differ from those of the release, or may; the choices are the same for each seed."""
    size = chance.choice((2, 3, 4, 8))
    block, superpod, job = chance.choice(_ESCALATIONS)
    fields: dict[str, Any] = {
        "reference_parity": chance.random() < 0.25,
        "super_pod_size": size,
        "reserve_nodes": chance.choice((0, 1)),
        "resource_levels": LEVELS if "trees" in way.traits else "",
        "round_gangs_max": chance.choice((1, 3, 256)),
        "attempts_max": chance.choice((2, 5)),
        "shard_retry_ms": chance.choice((10, 500)),
        "needs_health": chance.random() < 0.1,
        "health_first": chance.random() < 0.2,
        "nslb_version": chance.choice(("1.0", "2.0")),
        "shared_tor_num": chance.choice((1, 2)),
        "reserve_chips": chance.choice((1, 8, 16)),
        "reserve_depth": chance.choice((1, 2, 16)),
        "unknown_run_ms": chance.choice((10, 1_000)),
        "plan_before_delete": chance.random() < 0.6,
        "escalate_block_ms": block,
        "escalate_superpod_ms": superpod,
        "escalate_job_ms": job,
    }
    return fields | {name: chance.choice(values) for name, values in _TIMES.items()}


def _chance(what: str, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}")  # noqa: S311  # the same for the same seed
