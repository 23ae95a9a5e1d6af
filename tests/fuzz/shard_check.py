"""Offers of shards, gathered as the dispatcher gathers them, lead to the same record as no shards."""

import functools
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from berth.core.scheduling.turn import Asking, MissingShards, OffersExhaustedError, Opening
from berth.core.scheduling.verdicts import Decided, round_of
from berth.runtime.bus.port import Gathered
from berth.runtime.instruments import Instruments
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.envelope import decode, encode
from berth.schemas.ledger import Round
from berth.schemas.offers import Offer, ScoreRequest
from berth.schemas.recording import Entry
from berth.schemas.subjects import Subjects
from berth.services.dispatcher.scatter import Scatter
from berth.services.scorer.loop import Shard
from berth.services.scorer.metrics import ScorerMetrics
from tests.fuzz.failure import Failure
from tests.fuzz.seat import Seat
from tests.support.clock import ManualClock

_SCORED = ("node", "health", "topology", "drain")


class _Mute:
    """All of a bus that a shard needs which is asked directly."""

    subjects = Subjects("c")


class _Line(_Mute):
    """What stands between a gathering and the shards: they answer at once, or not at all."""

    def __init__(self, shards: list[Shard], missing_shards: MissingShards) -> None:
        self._shards = shards
        self._missing_shards = missing_shards

    async def gather(self, subjects: Mapping[int, str], data: bytes, *, timeout_s: float) -> Gathered:
        """Answers of the shards that are not silent."""
        del timeout_s
        request = decode(data, ScoreRequest)
        away = list(self._missing_shards.missing)
        replies = {shard: self._answer(shard, request) for shard in subjects if shard not in away}
        return Gathered(replies, away)

    def _answer(self, number: int, request: ScoreRequest) -> bytes:
        shard = self._shards[number]
        state = shard.state
        return encode(
            Offer(
                shard=number,
                round=request.round,
                facts_seq=state.nodes_seq,
                ledger_seq=state.fold.head,
                ready=True,
                shapes=[shard._offer(ask, packed=None) for ask in request.asks],
            )
        )


class Shards:
    """Shards of a cell, brought up to date when they are asked.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._clock = clock = ManualClock()
        self._shards = [
            Shard(_Mute(), clock, shard=number, shards=count, instruments=Instruments.make(ScorerMetrics))  # type: ignore[arg-type]  # as its docstring says
            for number in range(count)
        ]
        self._facts: list[Entry] = []
        self._records: list[Entry] = []

    def hear(self, entry: Entry) -> None:
        """Note what was stored."""
        if not entry.subject:
            self._records.append(entry)
        elif entry.subject.split(".")[3] in _SCORED:
            self._facts.append(entry)

    def record(self, seat: Seat, opening: Opening, missing_shards: MissingShards) -> Round:
        """The record of a round on the offers of shards.

        Raises:
            Failure: The offers never reach far enough.
        """
        self._catch_up()
        scatter = Scatter(
            _Line(self._shards, missing_shards),  # type: ignore[arg-type]  # all of a bus that gathering needs
            self._clock,
            seat.state,
            shards=self.count,
            timeout_s=1.0,
            log=DEFAULT_LOG,
        )
        asking = Asking(opening)
        found: Decided | None = None
        heard = MissingShards()
        by_shards = opening._replace(heavy=frozenset())
        while found is None:
            offers = finished(scatter.gather(seat.scheduler.scorer, asking.asks, by_shards))
            heard = offers.missing_shards
            decide = functools.partial(seat.scheduler.decisions.on_offers, opening, offers.views, asking.asks, heard)
            try:
                found = asking.tried(decide)
            except OffersExhaustedError as error:
                raise Failure("shards: a round runs out of offers") from error
        return round_of(seat.state, found.choice(opening, heard))

    def _catch_up(self) -> None:
        for shard in self._shards:
            state = shard.state
            for entry in self._facts:
                state.apply_fact(entry.subject, entry.sequence, entry.data)
            for entry in self._records:
                state.apply_record(entry.sequence, entry.data)
        self._facts.clear()
        self._records.clear()


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401  # whatever it returns
    """Result of a coroutine that waits for nothing.

    Raises:
        RuntimeError: It waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("it waits for something")


def see_same(record: Round, other: Round, shards: int) -> None:
    """See that shards lead to the same record.

    Raises:
        Failure: They do not.
    """
    if encode(record) != encode(other):
        fields = [name for name in Round.__struct_fields__ if getattr(record, name) != getattr(other, name)]
        raise Failure(f"shards: {', '.join(fields)} differ", f"{shards} shards: {_difference(record, other)}")


def _difference(record: Round, other: Round) -> str:
    for mine, its in zip(record.verdicts, other.verdicts, strict=False):
        if mine != its:
            return f"{msgspec.to_builtins(mine)!r} alone, {msgspec.to_builtins(its)!r} with shards"
    return f"{record!r} alone, {other!r} with shards"
