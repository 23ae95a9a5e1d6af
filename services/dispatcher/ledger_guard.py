"""Guard of the ledger: no decision on a ledger that has lost records by which pods are bound.

Bound pods name the record that placed them, and the inventory says in a fact which is the newest (``fact.ledger``). A
record that the ledger does not have was lost: chips are taken that it counts as free, and the next record would get the
sequence of a lost one. See decision ledger-marks.
"""

from berth.runtime.feeds import Feeds
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import LedgerSeen
from berth.schemas.subjects import StreamName


class CannotLeadError(Exception):
    """The ledger is not one to decide on; the message says why, and what to do."""


class LedgerGuard:
    """Compares what bound pods say of the ledger with the ledger.

    Args:
        feeds: Facts and ledger.
    """

    def __init__(self, feeds: Feeds) -> None:
        self._bus = feeds.bus
        self._feeds = feeds
        self._state = feeds.state
        self._stream = ""

    async def obstacle(self) -> str:
        """Why nothing may be decided on this ledger; empty if nothing is known against it.

        Asks the bus only if the facts do not agree with what is applied of the ledger.

        Raises:
            TransientError: The bus did not answer.
        """
        seen = self._seen()
        if seen is None or (seen.stream == self._stream and seen.sequence <= self._state.fold.head):
            return ""
        found = await self._bus.state(StreamName.LEDGER)
        self._stream = found.created
        if seen.stream != found.created:
            return (
                f"the stream of the ledger was made {found.created}, and the inventory has not listed the pods of the"
                f" cluster since: its newest fact is about the one made {seen.stream}; is the inventory running?"
            )
        if seen.sequence > found.last_seq:
            return (
                f"the ledger ends at record {found.last_seq}, but a pod is bound by record {seen.sequence} of epoch"
                f" {seen.epoch} of the same stream: the newest records were lost. Use: berth restore"
            )
        return ""

    def _seen(self) -> LedgerSeen | None:
        """The newest fact of the ledger, also if it is received and not applied: a standby waits for the leader."""
        newest = self._feeds.facts.newest
        if newest is not None and newest.sequence > self._state.facts_seq:
            try:
                return decode(newest.data, LedgerSeen)
            except DecodeError:
                pass  # when it is applied, it becomes a dead letter
        return self._state.ledger_seen

    async def check(self) -> None:
        """See that nothing is known against the ledger.

        Raises:
            CannotLeadError: Something is.
            TransientError: The bus did not answer.
        """
        obstacle = await self.obstacle()
        if obstacle:
            raise CannotLeadError(obstacle)
