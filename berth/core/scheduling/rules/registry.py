"""Rules of an epoch, by name."""

from berth.core.scheduling.rules.backfill import Backfill, Terms
from berth.core.scheduling.rules.plain_pods import PlainPods
from berth.core.scheduling.rules.port import Rule
from berth.core.scheduling.rules.strict_order import StrictOrder
from berth.schemas.ledger import Settings


def rules_of(settings: Settings) -> tuple[Rule, ...]:
    """The rules that settings stand for, in their order; none for ``skip``."""
    match settings.queue_policy:
        case "fifo":
            return (StrictOrder(),)
        case "easy":
            return (Backfill(Terms(settings.reserve_chips, 1, is_deep=False)), PlainPods())
        case "conservative":
            return (Backfill(Terms(settings.reserve_chips, settings.reserve_depth, is_deep=True)), PlainPods())
        case _:
            return ()
