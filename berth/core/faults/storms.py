"""Storms: how many jobs restart at a time for one cause, so that one bad report cannot restart the cluster."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from berth.core.faults.examination import Faulty
from berth.core.faults.model import PodFaultKind
from berth.core.state.cell import State

_PERCENT: Final = 100
_REPORTED: Final = frozenset({PodFaultKind.NODE_UNHEALTHY, PodFaultKind.CARD_UNHEALTHY, PodFaultKind.SUB_HEALTH})
"""Faults that sources report about nodes, not about pods."""


class Cause(NamedTuple):
    """What faults have in common: their kind, and the domain of the nodes on which they are."""

    kind: str
    domain: str


class HeldBack(NamedTuple):
    """A gang that does not restart yet."""

    subject: str
    """Its namespaced name."""
    reason: str
    """A sentence."""


def within_limits(state: State, faulty: Sequence[Faulty]) -> tuple[list[Faulty], list[HeldBack]]:
    """Faulty gangs that may take a step now, and those that have to wait.

    At most ``restarts_at_once`` gangs restart as a whole for one cause. If more would, and that is more than
    ``restart_share_percent`` of the gangs that run, none of those whose faults a source reports does.

    Args:
        state: The cell.
        faulty: Gangs that need a step, in the order in which they are tried.
    """
    settings = state.fold.settings
    if settings.reference_parity or not any(_restarts(one) for one in faulty):
        return list(faulty), []
    restarting = _restarting(state)
    wanted = Counter(_cause(state, one) for one in faulty if _restarts(one))
    running = sum(1 for gang in state.fold.gangs.values() if gang.phase in {"placed", "ending"})
    kept: list[Faulty] = []
    held: list[HeldBack] = []
    for one in faulty:
        if not _restarts(one):
            kept.append(one)
            continue
        cause = _cause(state, one)
        many = restarting[cause] + wanted[cause]
        if (
            many > settings.restarts_at_once
            and cause.kind in _REPORTED
            and _is_share(many, running, settings.restart_share_percent)
        ):
            held.append(
                HeldBack(
                    one.gang.namespaced_name,
                    f"{cause.kind} in domain {cause.domain} would restart {many} of {running} jobs, more than {settings.restart_share_percent} percent",
                )
            )
        elif restarting[cause] >= settings.restarts_at_once:
            held.append(
                HeldBack(
                    one.gang.namespaced_name,
                    f"{restarting[cause]} jobs restart for {cause.kind} in domain {cause.domain} already",
                )
            )
        else:
            restarting[cause] += 1
            wanted[cause] -= 1
            kept.append(one)
    return kept, held


def _is_share(many: int, running: int, percent: int) -> bool:
    return many * _PERCENT > percent * running


def _restarts(one: Faulty) -> bool:
    return any(option.scope == "job" for option in one.options)


def _restarting(state: State) -> "Counter[Cause]":
    """Gangs that restart as a whole, by cause."""
    found: Counter[Cause] = Counter()
    for holding in state.fold.holdings.values():
        record = state.fold.gangs.get(holding.uid) if holding.ending == "fault" else None
        if record is not None and record.recovery is not None:
            found[Cause(record.recovery.kind, _domain(state, record.recovery.nodes))] += 1
    return found


def _cause(state: State, one: Faulty) -> Cause:
    return Cause(one.options[0].kind, _domain(state, one.nodes))


def _domain(state: State, nodes: Sequence[str]) -> str:
    """Domain of the first node that is still there; empty when none is."""
    return next((domain for node in nodes if (domain := state.faults.domain(node))), "")
