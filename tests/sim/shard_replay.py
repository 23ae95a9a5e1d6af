"""A history that is decided again on the offers of some scorers, as a dispatcher with that many asks them."""

from berth.core.replay.divergence import Difference
from berth.core.replay.replay import Replay, _Own
from berth.core.scheduling.following import opening_for
from berth.core.scheduling.turn import MissingShards
from berth.schemas.ledger import Round
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.status import SnapshotBody
from tests.fuzz.seat import Seat
from tests.fuzz.shard_check import Shards


class ShardReplay(Replay):
    """See above. A record that was decided while scorers were silent is decided without offers.

    Args:
        start: State at the beginning.
        count: Number of scorers.

    Attributes:
        on_offers: Records that were decided on offers.
    """

    def __init__(self, start: SnapshotBody, count: int) -> None:
        super().__init__(start)
        self.on_offers = 0
        # Scorers have no snapshot to begin with: after a restore there are no offers.
        self._scorers = Shards(count) if start is BEGINNING else None
        self._seat = Seat()
        self._seat.state, self._seat.scheduler = self.state, self.scheduler

    def feed(self, entry: Entry) -> Difference | None:
        """Read the next entry; returns the difference if there is one."""
        found = super().feed(entry)
        if self._scorers is not None:
            self._scorers.hear(entry)
        return found

    def _decided(self, record: Round) -> _Own:
        if self._scorers is None or record.missing:
            return super()._decided(record)
        opening = opening_for(self.scheduler, record)
        if opening is None:
            return _Own(opening, None)
        self.on_offers += 1
        return _Own(opening, self._scorers.record(self._seat, opening, MissingShards()))
