"""Answering score requests at the sequences that they name."""

import asyncio
import math
from typing import Final

from berth.core.cluster.bitmaps import bitmap_of
from berth.core.cluster.domains import shard_of
from berth.core.placement.offers import OwnRows, offer_of
from berth.core.placement.scoring import Scorer
from berth.core.state.cell import State
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError
from berth.runtime.feeds import Feeds
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.offers import Advance, Ask, Offer, ScoreRequest, ShapeOffer
from berth.services.scorer.metrics import ScorerMetrics

REQUESTS_MAX: Final = 64
"""Requests that wait with the time of their receipt; more wait without."""
_WAIT_MS_DEFAULT: Final = 250
_PAUSE_S: Final = 0.01
"""How long shapes are scored before requests that came are taken in."""


class Shard:
    """State of one shard, and its answers.

    Args:
        bus: The cell.
        clock: Of the process.
        shard: Number of the shard, below ``shards``.
        shards: Number of shards.
        instruments: Of the process.
    """

    def __init__(
        self, bus: Bus, clock: Clock, *, shard: int, shards: int, instruments: Instruments[ScorerMetrics]
    ) -> None:
        self.shard = shard
        self.bus = bus
        self._log = instruments.log
        self._metrics = instruments.metrics
        self.clock = clock
        self.state = State(owns=lambda domain: shard_of(domain, shards) == shard)
        self.feeds = Feeds(bus, clock, self.state, instruments.log, void=instruments.metrics.void)
        self._turn = asyncio.Lock()
        """Held while a request is answered: the state stays as it is."""
        self.answered = 0
        self.late = 0
        self._own = OwnRows(lambda _: True)  # the state of a shard has its own domains only
        self._scorer = Scorer(self.state.table, self.state.shares, self.state.fold.settings)

    async def start(self) -> None:
        """Load the stored state."""
        subjects = self.bus.subjects
        await self.feeds.start(filters=[subjects.facts(kind) for kind in ("node", "health", "topology", "drain")])
        self.show()

    async def answer(self, data: bytes) -> bytes | None:
        """Offer for a request; None if nobody waits for it any more.

        Requests are answered one at a time, in the order in which they come.

        Raises:
            PoisonError: The request does not decode.
        """
        began_s = self.clock.monotonic_s()
        try:
            request = decode(data, ScoreRequest)
        except DecodeError as error:
            raise PoisonError(str(error)) from error
        until_s = began_s + request.keep_ms / 1000 if request.keep_ms else math.inf
        async with self._turn:
            answer = await self._answer(request, until_s)
        self._metrics.requests.labels("dropped" if answer is None else "yes" if answer.ready else "no").inc()
        self._metrics.took.observe(self.clock.monotonic_s() - began_s)
        return encode(answer) if answer is not None else None

    async def _answer(self, request: ScoreRequest, until_s: float) -> Offer | None:
        """Offer for a request; None after ``until_s``."""
        began_s = self.clock.monotonic_s()
        if began_s >= until_s:
            self._note_dropped(request, scored=0)
            return None
        wait_ms = request.wait_ms or _WAIT_MS_DEFAULT
        ready = await self._reach(request.facts_seq, request.ledger_seq, timeout_s=wait_ms / 1000)
        self.answered += ready
        self.late += not ready
        shapes: list[ShapeOffer] = []
        packed: dict[tuple[int, ...], bytes] = {}
        paused_s = self.clock.monotonic_s()
        for ask in request.asks if ready else ():
            shapes.append(self._offer(ask, packed))
            now_s = self.clock.monotonic_s()
            if now_s >= until_s:
                self._note_dropped(request, scored=len(shapes))
                return None
            if now_s - paused_s >= _PAUSE_S:  # requests that come are timed from now on
                await asyncio.sleep(0)
                paused_s = self.clock.monotonic_s()
        if not ready:
            self._log.warning(
                "cannot answer at the requested sequences",
                shard=self.shard,
                facts_asked=request.facts_seq,
                facts=self.state.nodes_seq,
                ledger_asked=request.ledger_seq,
                ledger=self.state.fold.head,
            )
        return Offer(
            shard=self.shard,
            round=request.round,
            facts_seq=self.state.nodes_seq,
            ledger_seq=self.state.fold.head,
            ready=ready,
            shapes=shapes,
        )

    def _note_dropped(self, request: ScoreRequest, *, scored: int) -> None:
        """Say that a request came too late to be of use."""
        self._log.warning(
            "request dropped, nobody waits for it", shard=self.shard, shapes=len(request.asks), scored=scored
        )

    def _offer(self, ask: Ask, packed: dict[tuple[int, ...], bytes] | None) -> ShapeOffer:
        """What this shard can give for a shape."""
        table = self.state.table
        found = self.scorer.candidates(ask.shape, ask.count)
        usable = bitmap_of(found.fits, self._own.rows(table)) if found.fits is not None else b""
        return offer_of(table, found, usable=usable, packed=packed)

    async def advance(self, data: bytes) -> None:
        """Apply what may be applied between requests.

        Raises:
            PoisonError: The message does not decode.
        """
        try:
            named = decode(data, Advance)
        except DecodeError as error:
            raise PoisonError(str(error)) from error
        async with self._turn:
            self._apply(named.facts_seq, named.ledger_seq)

    @property
    def scorer(self) -> Scorer:
        """Scoring under the settings of the epoch."""
        if self._scorer.settings is not self.state.fold.settings:
            self._scorer = Scorer(self.state.table, self.state.shares, self.state.fold.settings)
        return self._scorer

    def _apply(self, facts_seq: int, ledger_seq: int) -> None:
        self.feeds.apply_facts(up_to=facts_seq)
        self.feeds.dead.clear()  # the dispatcher publishes dead letters
        self.feeds.apply_records(up_to=ledger_seq)
        self.show()

    def show(self) -> None:
        """Set the metrics to the sequences of this shard."""
        self._metrics.facts.set(self.state.nodes_seq)
        self._metrics.ledger.set(self.state.fold.head)
        self._metrics.nodes.set(len(self.state.table))

    async def _reach(self, facts_seq: int, ledger_seq: int, *, timeout_s: float) -> bool:
        """Go exactly to the sequences; False when that is not possible in time, or the state is beyond them."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self.feeds.arrived.clear()
                    self._apply(facts_seq, ledger_seq)
                    if self.state.nodes_seq >= facts_seq and self.state.fold.head >= ledger_seq:
                        break
                    await self.feeds.arrived.wait()
        except TimeoutError:
            return False
        return (self.state.nodes_seq, self.state.fold.head) == (facts_seq, ledger_seq)
