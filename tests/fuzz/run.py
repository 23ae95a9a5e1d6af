"""A history, lived through under the eyes of all checks."""

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from berth.cli.recordings.replay import lines_of
from berth.core.errors import CoreError
from berth.core.replay.replay import Replay
from berth.core.scheduling.turn import MissingShards, Opening, Recorded
from berth.core.state.internal_errors import SetAside
from berth.core.state.invariants import check
from berth.schemas.envelope import decode, encode
from berth.schemas.ledger import Round
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.status import SnapshotBody
from tests.fuzz.accounts import Accounts
from tests.fuzz.breakage import BrokenError, breakable
from tests.fuzz.constraint_check import see_constraints_hold
from tests.fuzz.failure import Failure
from tests.fuzz.likeness import see_alike, see_same_snapshot
from tests.fuzz.seat import Seat
from tests.fuzz.shard_check import Shards, see_same
from tests.fuzz.sleepers import see_nobody_sleeps
from tests.fuzz.steps import History
from tests.fuzz.words import words_of
from tests.fuzz.world import World
from tests.support.replays import entries_after

COUNTS: Final = (1, 3, 8)
"""Numbers of shards that are compared, beside none."""


class Depth(msgspec.Struct, frozen=True):
    """How often the costly checks are made: after one record in so many; 1: after each."""

    shards: int = 6
    snapshot: int = 8
    sleepers: int = 30
    counts: int = 1
    """Numbers of shards that are looked at."""


FULL: Final = Depth(1, 1, 1, len(COUNTS))
"""Everything after each record."""


class Checks:
    """All checks of one history, as it goes on.

    Args:
        seed: Which records are looked at closely.
        depth: How many.
        count: What was done.
        story: What happened, in words, where somebody wants to know.
    """

    def __init__(self, seed: int, depth: Depth, count: Counter[str], story: list[str] | None = None) -> None:
        self.world: World
        self.count = count
        self._story = story
        self._chance = random.Random(seed)  # noqa: S311  # the same checks for the same seed
        self._depth = depth
        self._accounts = Accounts()
        self._facts: list[Entry] = []
        self._entries: list[Entry] = []
        self._reader: Seat | None = None
        self._middle: SnapshotBody | None = None
        start = seed % len(COUNTS)
        counts = [COUNTS[(start + step) % len(COUNTS)] for step in range(depth.counts)]
        self._shards = {number: Shards(number) for number in counts}
        self._silent: Shards | None = None
        self._turns = 0

    def fact(self, entry: Entry) -> None:
        """A fact was stored and applied."""
        self.count["events"] += 1
        if self._story is not None:
            self._story.append(words_of(entry))
        self._facts.append(entry)
        self._entries.append(entry)
        if self._reader is not None:
            self._reader.fact(entry.subject, entry.sequence, entry.data)
        for shards in self._shards.values():
            shards.hear(entry)

    def opened(
        self, at_ms: int, turn: Recorded | None, missing_shards: MissingShards, set_aside: Sequence[SetAside]
    ) -> None:
        """A turn was opened, and decided; None when there was nothing to decide."""
        self._turns += 1
        if self._reader is not None:
            self._read(at_ms, turn.round if turn is not None else None, missing_shards)
        self._see_no_errors([*set_aside, *(turn.set_aside if turn is not None else ())])
        if turn is None:
            return
        opening, record = turn.opening, turn.round
        world = self.world
        self.count.update(
            see_constraints_hold(
                record, self._accounts, world.ground.nodes, world.neighbours, world.storage, world.seat.state
            )
        )
        if not opening.asks:
            return
        if missing_shards.missing:
            self._compare(opening, record, missing_shards, self._of(missing_shards.shards))
        elif self._turns <= 2 or record.recoveries or self._chance.randrange(self._depth.shards) == 0:
            for shards in self._shards.values():
                self._compare(opening, record, missing_shards, shards)

    def _see_no_errors(self, set_aside: Sequence[SetAside]) -> None:
        """Nobody is set aside but for what a history breaks.

        Raises:
            Failure: Somebody is.
        """
        for one in set_aside:
            if BrokenError.__name__ not in {type(one.error).__name__, str(one.error)}:
                raise Failure(f"set aside: {type(one.error).__name__}", f"{one}") from one.error
            self.count["gang: set aside"] += 1

    def _read(self, at_ms: int, record: Round | None, missing_shards: MissingShards) -> None:
        assert self._reader is not None
        self.count["check: reader from a snapshot"] += 1
        other = self._reader.decided(at_ms, missing_shards)
        mine, its = (encode(one) if one is not None else b"" for one in (record, other))
        if mine != its:
            raise Failure("reader: a record differs from that of a reader from a snapshot", f"{record!r}, {other!r}")

    def _of(self, number: int) -> Shards:
        known = self._shards.get(number)
        if known is None:
            known = self._shards[number] = Shards(number)
            for entry in self._entries:
                known.hear(entry)
        return known

    def _compare(self, opening: Opening, record: Round, missing_shards: MissingShards, shards: Shards) -> None:
        self.count["check: shards"] += 1
        see_same(record, shards.record(self.world.seat, opening, missing_shards), shards.count)

    def taken_back(self) -> None:
        """What was decided was not stored."""
        if self._reader is not None:
            self._reader.take_back()

    def stored(self, entry: Entry, record: Round | None) -> None:
        """A record was stored and adopted.

        Raises:
            Failure: It breaks a rule.
        """
        self.count["events"] += 1
        if self._story is not None:
            self._story.append(words_of(entry))
        self.count["records"] += 1
        self._entries.append(entry)
        if self._reader is not None:
            self._reader.stored(entry.sequence, entry.data)
        for shards in self._shards.values():
            shards.hear(entry)
        check(self.world.seat.state)
        self.count["check: invariants"] += 1
        if record is not None:
            ground, state = self.world.ground, self.world.seat.state
            self._accounts.take(record, ground.nodes, ground.conditions(), state.jobs, state.pods)
            self.count["check: accounts"] += 1

    def look(self) -> None:
        """Look closely at what is, now and then; after a turn, when a snapshot may be written."""
        if self._chance.randrange(self._depth.snapshot) == 0:
            self._look_at_snapshot()
        if self._chance.randrange(self._depth.sleepers) == 0:
            self._look_at_sleepers()

    def _look_at_snapshot(self) -> None:
        self.count["check: snapshot"] += 1
        snapshot = self.world.seat.snapshot()
        if self._reader is not None:
            see_same_snapshot(snapshot, self._reader.snapshot(), "reader")
        self._reader = see_alike(self.world.seat, snapshot)
        if self._middle is None or self._chance.random() < 0.3:
            self._middle = decode(snapshot, SnapshotBody)

    def _look_at_sleepers(self) -> None:
        self.count["check: sleepers"] += 1
        see_nobody_sleeps(self.world.seat.snapshot(), self.world.now_ms)

    def end(self) -> None:
        """Look at all of it."""
        self._look_at_snapshot()
        self._look_at_sleepers()
        self._replay(BEGINNING, "check: replay")
        if self._middle is not None:
            self._replay(self._middle, "check: replay from a snapshot")

    def _replay(self, start: SnapshotBody, what: str) -> None:
        self.count[what] += 1
        replay = Replay(start)
        for entry in entries_after(self._entries, start):
            found = replay.feed(entry)
            if found is not None:
                raise Failure(f"{what.removeprefix('check: ')}: a decision differs", "\n".join(lines_of(found)))
        result = replay.result
        if result.digest != result.recorded_digest:
            raise Failure("replay: another digest", "")


def live(
    history: History, seed: int, count: Counter[str], depth: Depth | None = None, *, story: list[str] | None = None
) -> None:
    """Live through a history.

    Args:
        history: What happens.
        seed: Which records are looked at closely.
        count: What was there, by feature.
        depth: How many records are looked at closely.
        story: To be filled with a line for each thing that happens.

    Raises:
        Failure: Something is wrong.
    """
    checks = Checks(seed, depth or Depth(), count, story)
    world = checks.world = World(history.way, checks, count)
    try:
        with breakable() if "broken" in history.way.traits else contextlib.nullcontext():
            _go_through(history, world, checks)
    except Failure:
        raise
    except (
        CoreError,
        ArithmeticError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        AssertionError,
        RuntimeError,
    ) as error:
        raise Failure(f"exception: {type(error).__name__}", str(error)) from error
    count["histories"] += 1


def _go_through(history: History, world: World, checks: Checks) -> None:
    world.begin()
    for step in history.steps:
        world.act(step)
        checks.count["steps"] += 1
        if step.turns:
            checks.look()
    world.settle()
    checks.end()
