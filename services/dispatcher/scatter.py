"""Offers for a round: from the shards over the bus, or computed in this process when there are none."""

import asyncio
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from berth.core.cluster.domains import shard_of
from berth.core.placement.offers import OwnRows, candidates_of, check_possible, merge
from berth.core.placement.round_demand import ROUND_WORK_MAX
from berth.core.placement.scoring import Candidates, Scorer
from berth.core.scheduling.heavy_gangs import WORK_MAX_LEAST, portions
from berth.core.scheduling.turn import Opening
from berth.core.state.cell import State
from berth.runtime.bus.port import Bus, Gathered
from berth.runtime.clock import Clock
from berth.runtime.logs import Logger
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.offers import Advance, Ask, Offer, ScoreRequest, Shape, ShapeOffer
from berth.services.dispatcher.late_shards import BRIEF_SHARE, LateShards

_ANSWER_SHARE: Final = 0.8
"""Part of the deadline that a shard may use to reach the sequences."""
_HEAVY_SHARE: Final = 0.5
"""Part of the deadline that heavy shapes may take in one round, beside that of the others."""
_REST: Final = 4.0
_REST_MAX_S: Final = 10.0
_REST_LATE_S: Final = 1.0
"""After a round with heavy gangs they are left out for so many times as long, but no longer than this, or than that if
they were late: otherwise all gangs would wait for such rounds."""
_WHOLE_SHARE: Final = 0.9
"""Part of the deadline after which a shard without an answer is late; less means that it has no process. A timer may
fire a little early."""


def _is_of(shard: int, shards: int, domain: str) -> bool:
    return shard_of(domain, shards) == shard


class Offers(NamedTuple):
    """Merged candidates by shape, and the shards without an answer, ascending."""

    views: dict[Shape, Candidates]
    missing: list[int]
    doubted: list[int]
    """Shards among them that answered, but whose leaf states contradict the dispatcher's."""
    are_heavy_late: bool = False
    """Candidates of heavy shapes took too long; ``views`` has those of the others."""


class _Answers(NamedTuple):
    """Answers of shards to one request."""

    by_shard: dict[int, list[Candidates | None]]
    """By shape, in the order of the request; None where leaf states contradict the dispatcher's."""
    missing: list[int]


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
        self._opening: Opening | None = None
        self._left_s = 0.0
        """Time that heavy shapes may still take in its turn."""
        self._rests_until_s = -math.inf
        """Until then no heavy gang is decided."""
        self._rest_max_s = _REST_MAX_S

    @property
    def work_max(self) -> int:
        """Bound of the work of the next round, as ``Scheduler.open`` takes it; 0 for that of the release.

        It is half after a round that waited its whole deadline for a shard, and twice as much after one in time.
        """
        return self._work_max if self._work_max < ROUND_WORK_MAX else 0

    async def gather(self, scorer: Scorer, asks: Mapping[Shape, int], opening: Opening) -> Offers:
        """Offers for ``asks`` at the state's sequences.

        Heavy shapes of the turn are asked for last, in several requests; in one turn they may take ``_HEAVY_SHARE`` of
        the deadline.

        Args:
            scorer: Scoring, for a cell without shards.
            asks: Candidates by shape.
            opening: The turn.
        """
        self.shapes_asked += len(asks)
        if self._opening is not opening:
            self._opening, self._left_s = opening, _HEAVY_SHARE * self._timeout_s
        if not asks:
            return Offers({}, [], [])
        first, *rest = portions(asks, opening.heavy, nodes=len(self._state.table))
        if rest and self._clock.monotonic_s() < self._rests_until_s:
            found = await self.gather(scorer, first, opening) if first else Offers({}, [], [])
            return found._replace(are_heavy_late=True)
        if self._shards:
            found = await self._ask_shards(first, rest, opening.number)
        else:
            found = await self._scored_here(scorer, first, rest)
        self._rest_max_s = _REST_LATE_S if found.are_heavy_late else _REST_MAX_S
        return found

    def rest_after(self, opening: Opening, began_s: float) -> None:
        """Let no heavy gang be decided for a while after a round that decided some.

        Args:
            opening: Its turn.
            began_s: When it began.
        """
        now_s = self._clock.monotonic_s()
        if opening.heavy and now_s >= self._rests_until_s:
            self._rests_until_s = now_s + min(_REST * (now_s - began_s), self._rest_max_s)

    async def advance(self, *, at_ms: int) -> None:
        """Send the shards the sequences up to which they may apply messages between requests."""
        if self._shards:
            fold = self._state.fold
            named = Advance(fold.epoch, self._state.nodes_seq, fold.head, at_ms)
            await self._bus.send(self._bus.subjects.advance, encode(named))

    async def _scored_here(
        self, scorer: Scorer, first: Mapping[Shape, int], rest: Sequence[Mapping[Shape, int]]
    ) -> Offers:
        leaves = self._state.leaves
        views = {shape: scorer.candidates(shape, count, leaves=leaves) for shape, count in first.items()}
        more: dict[Shape, Candidates] = {}
        for portion in rest:
            began_s = self._clock.monotonic_s()
            more |= {shape: scorer.candidates(shape, count, leaves=leaves) for shape, count in portion.items()}
            await asyncio.sleep(0)  # heartbeats go on
            if not self._has_time(began_s):
                return Offers(views, [], [], are_heavy_late=True)
        return Offers(views | more, [], [])

    def _has_time(self, began_s: float) -> bool:
        """Whether heavy shapes have time left, after what they have taken since ``began_s``."""
        self._left_s -= self._clock.monotonic_s() - began_s
        return self._left_s > 0

    async def _ask_shards(self, first: Mapping[Shape, int], rest: Sequence[Mapping[Shape, int]], number: int) -> Offers:
        began_s = self._clock.monotonic_s()
        found = await self._answers(first, number)  # also without a shape: it tells who answers at all
        is_late = bool(found.missing) and self._clock.monotonic_s() - began_s >= _WHOLE_SHARE * self._timeout_s
        self._work_max = (
            max(self._work_max // 2, WORK_MAX_LEAST) if is_late else min(2 * self._work_max, ROUND_WORK_MAX)
        )
        offers = [(first, found)]
        prompt = [shard for shard in range(self._shards) if shard not in found.missing]
        for portion in rest if prompt else ():
            began_s = self._clock.monotonic_s()
            more = await self._answers(portion, number, shards=prompt, timeout_s=self._left_s)
            if not self._has_time(began_s) or more.missing:
                return self._merged(offers[:1], are_heavy_late=True)
            offers.append((portion, more))
        if not prompt:
            offers += [(portion, _Answers({}, found.missing)) for portion in rest]
        return self._merged(offers)

    async def _answers(
        self, asks: Mapping[Shape, int], number: int, *, shards: Sequence[int] | None = None, timeout_s: float = 0
    ) -> _Answers:
        """Answers of shards to one request; without ``shards`` those of all of them, within the whole deadline."""
        fold = self._state.fold
        timeout_s = timeout_s or self._timeout_s
        request = ScoreRequest(
            round=number,
            epoch=fold.epoch,
            facts_seq=self._state.nodes_seq,
            ledger_seq=fold.head,
            asks=[Ask(shape, count) for shape, count in asks.items()],
            wait_ms=int(timeout_s * _ANSWER_SHARE * 1000),
            keep_ms=max(int(timeout_s * 1000), 1),
        )
        data = encode(request)
        gathered = await (self._gathered(data) if shards is None else self._ask(shards, data, timeout_s))
        read = {shard: self._read(shard, gathered.replies[shard], request) for shard in sorted(gathered.replies)}
        answers = {shard: found for shard, found in read.items() if found is not None}
        unusable = [shard for shard, found in read.items() if found is None]
        return _Answers(answers, sorted([*gathered.missing, *unusable]))

    def _merged(
        self, offers: Sequence[tuple[Mapping[Shape, int], _Answers]], *, are_heavy_late: bool = False
    ) -> Offers:
        """Candidates of all requests of a round; a shard that did not answer the first one answered none."""
        views: dict[Shape, Candidates] = {}
        missing = dict.fromkeys(offers[0][1].missing)
        doubted: dict[int, None] = {}
        for asks, answers in offers:
            for index, shape in enumerate(asks):
                parts = {shard: found[index] for shard, found in answers.by_shard.items()}
                lost = [shard for shard in range(self._shards) if parts.get(shard) is None]
                doubted.update(dict.fromkeys(shard for shard in lost if shard in answers.by_shard))
                sound = [part for part in parts.values() if part is not None]
                views[shape] = merge(self._state.table, sound, missing_nodes=self._nodes_of(lost))
        return Offers(views, sorted({**missing, **doubted}), sorted(doubted), are_heavy_late)

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

    def _read(self, shard: int, data: bytes, request: ScoreRequest) -> list[Candidates | None] | None:
        """Answer of a shard by shape, None if unusable; shapes with switch affinity may be unusable on their own."""
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
            doubted = any(ask.shape.tor_affinity for ask in request.asks) and self._contradicts(offer)
            unpacked: dict[bytes, list[int]] = {}
            return [
                None if doubted and ask.shape.tor_affinity else self._candidates(shard, ask, found, unpacked)
                for ask, found in zip(request.asks, offer.shapes, strict=True)
            ]
        except DecodeError as error:
            self._log.warning("offer rejected", shard=shard, reason=str(error))
            return None

    def _candidates(self, shard: int, ask: Ask, offer: ShapeOffer, unpacked: dict[bytes, list[int]]) -> Candidates:
        """Candidates of a shard for a shape.

        Raises:
            DecodeError: The offer is inconsistent with itself, or with the known nodes and leaf switches.
        """
        table, shape = self._state.table, ask.shape
        own = self._own[shard]
        leaves = self._state.leaves if shape.tor_affinity else None
        marked = own.rows(table) if shape.marks_nodes else None
        found = candidates_of(table, offer, leaves=leaves, own=marked, unpacked=unpacked)
        check_possible(table, found, count=ask.count, own=own)
        return found

    def _contradicts(self, offer: Offer) -> bool:
        """Whether a shard has other leaf states from the same ledger and leaf switches; its answer is then not used."""
        occupancy = self._state.leaf_occupancy
        if occupancy.follows_pods or offer.leaf_states == occupancy.bits().tobytes():
            return False
        self._log.error("shard reports different leaf states, offer rejected", shard=offer.shard, round=offer.round)
        return True

    def _nodes_of(self, shards: list[int]) -> int:
        """Number of nodes that the shards own."""
        if not shards:
            return 0
        table = self._state.table
        lost = set(shards)
        return sum(
            len(table.rows_of_domain(domain)) for domain in table.domains if shard_of(domain, self._shards) in lost
        )
