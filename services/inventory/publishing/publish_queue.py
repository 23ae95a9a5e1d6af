"""Queue of messages to the bus: in order, in batches, retried while the bus does not answer."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from berth.runtime.bus.port import Bus
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import encode
from berth.schemas.message import Message
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.publishing.stamps import restamped

M = TypeVar("M", bound=Message)
_AT_ONCE: Final = 256


class OutboundMessage(NamedTuple):
    """A message and its subject."""

    subject: str
    message: Message


class PublishQueue:
    """Publishes messages on the bus.

    Args:
        bus: The bus.
        instruments: Of the process.
        ahead_ms: How far the clock of the messages is ahead of that of the host.
    """

    def __init__(
        self, bus: Bus, instruments: Instruments[InventoryMetrics], *, ahead_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._bus = bus
        self._ahead_ms = ahead_ms
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._in_doubt: list[OutboundMessage] = []
        """Facts that were sent, and may or may not be stored."""

    async def settle(self) -> bool:
        """Store facts again that may or may not be stored; returns whether none is left."""
        if self._in_doubt:
            del self._in_doubt[: len(await self.store(self._in_doubt))]
        return not self._in_doubt

    async def publish(self, facts: Sequence[M], subject_of: Callable[[M], str], note: Callable[[M], None]) -> bool:
        """Store facts in order; returns whether all are stored.

        Those to which the bus did not answer count as published: what readers have may be they, so that what is so by
        then is compared with them. They are stored again before anything newer.

        Args:
            facts: The facts.
            subject_of: Subject of each.
            note: Is told of each that counts as published.
        """
        if not await self.settle():
            return False
        for start in range(0, len(facts), _AT_ONCE):
            part = [OutboundMessage(subject_of(fact), fact) for fact in facts[start : start + _AT_ONCE]]
            settled, sent = await self._store_part(part)
            self._in_doubt += part[len(settled) : sent]
            for fact in facts[start : start + max(len(settled), sent)]:
                note(fact)
            if len(settled) < len(part):
                return False
        return True

    async def store(self, messages: Sequence[OutboundMessage]) -> list[int]:
        """Store messages in order; returns the sequences of the settled prefix, 0 for one that is refused forever.

        When the bus does not answer, the prefix is shorter than the input. The rest may or may not be stored, and the
        caller stores it again, in order.
        """
        settled: list[int] = []
        for start in range(0, len(messages), _AT_ONCE):
            part = messages[start : start + _AT_ONCE]
            done, _ = await self._store_part(part)
            settled += done
            if len(done) < len(part):
                break
        return settled

    async def _store_part(self, messages: Sequence[OutboundMessage]) -> tuple[list[int], int]:
        """Sequences of the settled prefix, and how many messages were sent."""
        futures = []
        broken = False
        ahead_ms = self._ahead_ms()
        for outbound in messages:
            try:
                data = encode(restamped(outbound.message, ahead_ms))
                futures.append(await self._bus.submit_wait(outbound.subject, data))
            except TransientError as error:
                self._log.warning("message not stored", subject=outbound.subject, reason=error.reason)
                break
        settled: list[int] = []
        for outbound, future in zip(messages, futures, strict=False):
            sequence = 0
            try:
                sequence = await future
            except TransientError as error:
                if not broken:
                    self._log.warning("message not stored", subject=outbound.subject, reason=error.reason)
                broken = True
                continue
            except PoisonError as error:
                self._metrics.refused.inc()
                self._log.error("message refused", subject=outbound.subject, reason=error.reason)
            else:
                self._metrics.messages.labels(outbound.message.KIND).inc()
            if not broken:
                settled.append(sequence)
        return settled, len(futures)
