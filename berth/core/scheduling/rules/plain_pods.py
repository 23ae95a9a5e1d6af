"""Plain pods: gangs without chips wait behind no other one, and leave free what reservations count on."""

from berth.core.gangs import Gang
from berth.core.placement.rules import NOTHING_KEPT, Entry, KeptRoom, RuleRound
from berth.core.scheduling.rules.backfill import BackfillRound, is_start_news
from berth.core.scheduling.rules.port import RoundStart, Rule
from berth.schemas.placement import Placement
from berth.schemas.refusal import Refusal


class PlainPods(Rule):
    """Gangs without chips leave room to the reservations of a rule before this one."""

    keeps_room = True

    def begin(self, start: RoundStart) -> RuleRound | None:
        """The rule in a round; None without a rule that reserves."""
        book = next((one for one in start.before if isinstance(one, BackfillRound)), None)
        return None if book is None else PlainPodsRound(book, start.opening.at_ms)


class PlainPodsRound(RuleRound):
    """The rule in one round.

    Args:
        book: Reservations of the round.
        at_ms: The moment of the round.
    """

    lane = "plain"

    def __init__(self, book: BackfillRound, at_ms: int) -> None:
        self._book = book
        self._at_ms = at_ms
        self._kept: dict[int, KeptRoom] = {}
        """What must be left free, by how many of the reservations count, the next ones first."""

    def kept(self, entry: Entry) -> KeptRoom:
        """A gang leaves free what each reservation counts on that begins before the gang is expected to end.

        All gangs that wait and get a reservation have theirs by then, for a gang without chips goes before none of
        them.
        """
        binding = self._book.binding(entry.gang)
        known = self._kept.get(len(binding))
        if known is None and binding:
            room = KeptRoom(self._book.counted(binding), self._book.reserved(binding[0]))
            known = self._kept[len(binding)] = room
        return known or NOTHING_KEPT

    def started(self, gang: Gang, placement: Placement) -> None:  # noqa: ARG002  # the port has it
        """What others must leave free stays the same unless the end of the gang is expected."""
        if gang.run_ms:
            self._kept.clear()

    def is_news(self, entry: Entry, refusal: Refusal, last: Refusal) -> bool:  # noqa: ARG002  # the port has it
        """Another gang is ahead, or its start has moved."""
        return is_start_news(refusal, last, self._at_ms)
