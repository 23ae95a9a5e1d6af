"""Guard of the ledger: no decision on a ledger that has lost records by which pods are bound.

Bound pods name the record that placed them, and the inventory says in a fact which is the newest (``fact.ledger``). A
record that the ledger does not have was lost: chips are taken that it counts as free, and the next record would get the
sequence of a lost one. See decision ledger-marks.
"""

from typing import Final

from berth.runtime.feeds import Feeds
from berth.schemas.envelope import DecodeError, VersionError, decode, open_envelope
from berth.schemas.facts import LedgerSeen
from berth.schemas.ledger import record_head
from berth.schemas.subjects import StreamName

_PODS_SHOWN_MAX: Final = 4
_NODES_AGREE: Final = 2
"""Nodes whose pods have to say the same: one of them may be wrong alone, or in somebody else's hands."""


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
        self._agreed: LedgerSeen | None = None
        """Newest fact that agrees with the record that it names."""

    async def obstacle(self) -> str:
        """Why nothing may be decided on this ledger; empty if nothing is known against it.

        Asks the bus only if the facts do not agree with what is applied of the ledger.

        Raises:
            TransientError: The bus did not answer.
        """
        seen = self._seen()
        fold = self._state.fold
        is_known = seen is not None and (seen == self._agreed or seen.epoch == fold.epoch)
        if seen is None or (is_known and seen.stream == self._stream and seen.sequence <= fold.head):
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
                f" {seen.epoch} of the same stream: the newest records were lost. {_remedy(seen, found.last_seq + 1)}"
            )
        epoch = await self._epoch_of(seen.sequence)
        if epoch > seen.epoch:
            return (
                f"record {seen.sequence} of the ledger is of epoch {epoch}, but a pod is bound by record"
                f" {seen.sequence} of epoch {seen.epoch} of the same stream: records were lost, and others have their"
                f" sequences. {_remedy(seen, seen.sequence)}"
            )
        self._agreed = seen
        return ""

    async def _epoch_of(self, sequence: int) -> int:
        """Epoch of a stored record; 0 for one that was removed, is none, or only a newer release reads."""
        stored = await self._bus.message(StreamName.LEDGER, sequence)
        if stored is None:
            return 0
        try:
            head = record_head(open_envelope(stored.data))
        except (DecodeError, VersionError):
            return 0  # it is void, or stops this reader when it comes to it
        return head.epoch if head is not None else 0

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
        """Check that nothing is known against the ledger.

        Raises:
            CannotLeadError: Something is.
            TransientError: The bus did not answer.
        """
        obstacle = await self.obstacle()
        if obstacle:
            raise CannotLeadError(obstacle)


def _remedy(seen: LedgerSeen, first_seq: int) -> str:
    """Which pods name lost records, and what to do about it.

    Args:
        seen: The fact.
        first_seq: The first record that is known to be lost.
    """
    found = [one for one in seen.witnesses if one.sequence >= first_seq]
    shown = ", ".join(f"{one.pod} on node {one.node} (record {one.sequence})" for one in found[:_PODS_SHOWN_MAX])
    pods = f"Pods that say so: {shown}. " if shown else ""
    if not found or len(found) >= _NODES_AGREE:  # each is on another node; an older inventory names none
        return f"{pods}Use: berth restore"
    return (
        f"{pods}No second node says so: see whether a backup of this ledger has record {first_seq} before you restore"
        " it; if it has not, the pod is wrong: delete it, and restart the inventory"
    )
