"""What the dispatcher counts."""

from collections.abc import Iterable
from typing import Final

from berth.runtime.metrics import counter, gauge, seconds
from berth.schemas.ledger import Verdict

LEADS: Final = gauge("dispatcher_is_leader", "1 while this dispatcher decides, 0 while it stands by.")
ROUNDS: Final = counter("dispatcher_rounds_total", "Rounds that were appended to the ledger.")
APPEND: Final = seconds("dispatcher_append_seconds", "How long one append to the ledger took.")
WAITING: Final = gauge("dispatcher_waiting_gangs", "Gangs that wait for a place.")
LEDGER: Final = gauge("dispatcher_ledger_sequence", "Sequence of the last ledger record that was folded.")
FACTS: Final = gauge("dispatcher_facts_sequence", "Sequence of the last fact that was applied.")
JUDGED: Final = counter("dispatcher_requests_total", "Requests of the intake that were judged.")
_PLACED: Final = counter("dispatcher_placed_gangs_total", "Gangs that got a place.")
_REFUSED: Final = counter(
    "dispatcher_refused_gangs_total", "Verdicts of rounds that give no place; a gang may get several while it waits."
)
SET_ASIDE: Final = counter(
    "dispatcher_set_aside_total", "Decisions that ended with an error of Berth; the gang waits, the others go on."
)


def count_round(verdicts: Iterable[Verdict]) -> None:
    """Count an appended round."""
    ROUNDS.inc()
    for verdict in verdicts:
        (_PLACED if verdict.placement is not None else _REFUSED).inc()
