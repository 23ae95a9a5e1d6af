"""Offers for a round: from the shards over the bus, or computed in this process when there are none."""

import functools
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from berth.core.cluster.domains import shard_of
from berth.core.placement.offers import OwnRows, candidates_of, check_possible, merge
from berth.core.placement.round_demand import ROUND_WORK_MAX
from berth.core.placement.scoring import Candidates, Scorer
from berth.core.scheduling.heavy_gangs import WORK_MAX_LEAST
from berth.core.scheduling.turn import MissingShards, Opening
from berth.core.state.cell import State
from berth.runtime.bus.port import Bus, Gathered
from berth.runtime.clock import Clock
from berth.runtime.logs import Logger
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.offers import Advance, Ask, Offer, ScoreRequest, Shape, ShapeOffer
from berth.services.dispatcher.late_shards import BRIEF_SHARE, LateShards

_ANSWER_SHARE: Final = 0.8
"""Part of the deadline that a shard may use to reach the sequences."""
_WHOLE_SHARE: Final = 0.9
"""Part of the deadline after which a shard without an answer is late; less means that it has no process. A timer may
fire a little early."""


def _is_of(shard: int, shards: int, domain: str) -> bool:
    return shard_of(domain, shards) == shard


class Offers(NamedTuple):
    """Merged candidates by shape, and the shards without an answer."""

    views: dict[Shape, Candidates]
    missing_shards: MissingShards


class Scatter:
    """Requests offers.

    Args:
        bus: The cell.
        clock: Source of time.
        state: State of the dispatcher.
        shards: Number of shards; with 0 this process computes the offers.
        timeout_s: Deadline of one request to all shards, in seconds.
        log: Logger of the service.
    """

    def __init__(self, bus: Bus, clock: Clock, state: State, *, shards: int, timeout_s: float, log: Logger) -> None:
        self._bus = bus
        self._clock = clock
        self._state = state
        self._shards = shards
        self._timeout_s = timeout_s
        self._late = LateShards(timeout_s=timeout_s)
        self._log = log
        self._own = [OwnRows(functools.partial(_is_of, shard, shards)) for shard in range(shards)]
        self.shapes_asked = 0
        """Number of shapes for which offers were requested."""
        self._work_max = ROUND_WORK_MAX

    @property
    def work_max(self) -> int:
        """Bound of the work of the next round, as ``Scheduler.open`` takes it; 0 for that of the release.

        It is half after a round that waited its whole deadline for a shard, and twice as much after one in time.
        """
        return self._work_max if self._work_max < ROUND_WORK_MAX else 0

    async def gather(self, scorer: Scorer, asks: Mapping[Shape, int], opening: Opening) -> Offers:
        """Offers for ``asks`` at the state's sequences, but for heavy shapes of the turn.

        Args:
            scorer: Scoring, for a cell without shards.
            asks: Candidates by shape. If all of these are heavy, shards are asked for none: it tells who answers.
            opening: The turn.
        """
        if not asks:
            return Offers({}, MissingShards(self._shards))
        light = {shape: count for shape, count in asks.items() if shape not in opening.heavy}
        self.shapes_asked += len(light)
        if self._shards:
            return await self._ask_shards(light, opening.number)
        views = {shape: scorer.candidates(shape, count) for shape, count in light.items()}
        return Offers(views, MissingShards())

    async def advance(self, *, at_ms: int) -> None:
        """Send the shards the sequences up to which they may apply messages between requests."""
        if self._shards:
            fold = self._state.fold
            named = Advance(fold.epoch, self._state.nodes_seq, fold.head, at_ms)
            await self._bus.send(self._bus.subjects.advance, encode(named))

    async def _ask_shards(self, asks: Mapping[Shape, int], number: int) -> Offers:
        began_s = self._clock.monotonic_s()
        fold = self._state.fold
        request = ScoreRequest(
            round=number,
            epoch=fold.epoch,
            facts_seq=self._state.nodes_seq,
            ledger_seq=fold.head,
            asks=[Ask(shape, count) for shape, count in asks.items()],
            wait_ms=int(self._timeout_s * _ANSWER_SHARE * 1000),
            keep_ms=max(int(self._timeout_s * 1000), 1),
        )
        gathered = await self._gathered(encode(request))
        read = {shard: self._read(shard, gathered.replies[shard], request) for shard in sorted(gathered.replies)}
        answers = {shard: found for shard, found in read.items() if found is not None}
        missing = sorted(shard for shard in range(self._shards) if shard not in answers)
        is_late = bool(missing) and self._clock.monotonic_s() - began_s >= _WHOLE_SHARE * self._timeout_s
        self._work_max = (
            max(self._work_max // 2, WORK_MAX_LEAST) if is_late else min(2 * self._work_max, ROUND_WORK_MAX)
        )
        return self._merged(asks, answers, missing)

    def _merged(self, asks: Mapping[Shape, int], answers: Mapping[int, list[Candidates]], missing: list[int]) -> Offers:
        """Candidates of all shards.

        Args:
            asks: What was asked for.
            answers: By shard and shape, in the order of ``asks``.
            missing: Shards without an answer.
        """
        missing_nodes = self._nodes_of(missing)
        views = {
            shape: merge(self._state.table, [found[index] for found in answers.values()], missing_nodes=missing_nodes)
            for index, shape in enumerate(asks)
        }
        return Offers(views, MissingShards(self._shards, missing))

    async def _gathered(self, request: bytes) -> Gathered:
        """Replies of all shards; those that are late get a short deadline of their own, after the others."""
        began_s = self._clock.monotonic_s()
        brief = self._late.brief(began_s)
        prompt = [shard for shard in range(self._shards) if shard not in brief]
        replies, missing = await self._ask(prompt, request, self._timeout_s)
        now_s = self._clock.monotonic_s()
        if now_s - began_s >= _WHOLE_SHARE * self._timeout_s:
            self._late.note(missing, now_s=now_s)
        if brief:
            more = await self._ask(sorted(brief), request, BRIEF_SHARE * self._timeout_s)
            replies, missing = {**replies, **more.replies}, [*missing, *more.missing]
        self._late.answered(replies)
        return Gathered(replies, sorted(missing))

    async def _ask(self, shards: Sequence[int], request: bytes, timeout_s: float) -> Gathered:
        subjects = {shard: self._bus.subjects.score(shard) for shard in shards}
        return await self._bus.gather(subjects, request, timeout_s=timeout_s)

    def _read(self, shard: int, data: bytes, request: ScoreRequest) -> list[Candidates] | None:
        """Answer of a shard by shape; None if unusable."""
        try:
            offer = decode(data, Offer)
            fits = (offer.shard, offer.round, offer.facts_seq, offer.ledger_seq) == (
                shard,
                request.round,
                request.facts_seq,
                request.ledger_seq,
            )
            if not offer.ready or not fits or len(offer.shapes) != len(request.asks):
                return None
            unpacked: dict[bytes, list[int]] = {}
            return [
                self._candidates(shard, ask, found, unpacked)
                for ask, found in zip(request.asks, offer.shapes, strict=True)
            ]
        except DecodeError as error:
            self._log.warning("offer rejected", shard=shard, reason=str(error))
            return None

    def _candidates(self, shard: int, ask: Ask, offer: ShapeOffer, unpacked: dict[bytes, list[int]]) -> Candidates:
        """Candidates of a shard for a shape.

        Raises:
            DecodeError: The offer is inconsistent with itself, or with the known nodes.
        """
        table, shape = self._state.table, ask.shape
        own = self._own[shard]
        marked = own.rows(table) if shape.needs_marks else None
        found = candidates_of(table, offer, own=marked, unpacked=unpacked)
        check_possible(table, found, count=ask.count, own=own)
        return found

    def _nodes_of(self, shards: list[int]) -> int:
        """Number of nodes that the shards own."""
        if not shards:
            return 0
        table = self._state.table
        lost = set(shards)
        return sum(
            len(table.rows_of_domain(domain)) for domain in table.domains if shard_of(domain, self._shards) in lost
        )
