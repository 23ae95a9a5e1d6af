"""Storms: how many jobs restart at a time for one cause, so that one bad report cannot restart the cluster.

See decision storms.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from berth.core.faults.confirmation import CONFIRMED, sources_of
from berth.core.faults.examination import Faulty, examine_faults
from berth.core.faults.model import PodFaultKind
from berth.core.state.cell import State
from berth.schemas.ledger import Settings

_PERCENT: Final = 100
REPORTED: Final = frozenset({PodFaultKind.NODE_UNHEALTHY, PodFaultKind.CARD_UNHEALTHY, PodFaultKind.SUB_HEALTH})
"""Faults that sources report about nodes, not about pods."""


class Cause(NamedTuple):
    """What faults have in common: their kind, and the domain of the nodes on which they are."""

    kind: str
    domain: str

    @property
    def words(self) -> str:
        """It, for people."""
        return f"{self.kind} in domain {self.domain}" if self.domain else f"{self.kind} on nodes that are gone"


class HeldBack(NamedTuple):
    """A gang that does not restart yet.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        cause: Why it would restart.
        reason: Why it does not, as a sentence with numbers.
        why: The same without numbers, and what helps: it stays the same while others come and go.
        approvable: A person may approve it; otherwise it only waits for other jobs.
    """

    namespace: str
    name: str
    cause: Cause
    reason: str
    why: str
    approvable: bool

    @property
    def subject(self) -> str:
        """Its namespaced name."""
        return f"{self.namespace}/{self.name}"


class Limited(NamedTuple):
    """Faulty gangs, as the limits on restarts let them go on."""

    faulty: list[Faulty]
    """Those that may take a step now, in order."""
    held: list[HeldBack]
    """Those that wait, in order."""


def within_limits(state: State, faulty: Sequence[Faulty], *, at_ms: int) -> Limited:
    """Faulty gangs that may take a step now, and those that have to wait.

    At most ``restarts_at_once`` gangs restart as a whole for one cause; those that wait for places do not count, and
    keep nobody back. If more would for faults of one kind that sources report, and that is more than
    ``restart_share_percent`` of the gangs that run, only those do whose faults a second source confirms, or whose cause
    a person approved.

    Args:
        state: The cell.
        faulty: Gangs that need a step, in the order in which they are tried.
        at_ms: The moment.
    """
    settings = state.fold.settings
    if settings.reference_parity or not any(map(restarts, faulty)):
        return Limited(list(faulty), [])
    restarting = _restarting(state)
    of_kind = _by_kind(restarting)
    for one in faulty:
        of_kind[one.options[0].kind] += restarts(one)
    running = sum(1 for gang in state.fold.gangs.values() if gang.phase in {"placed", "ending"})
    found = Limited([], [])
    for one in faulty:
        if not restarts(one):
            found.faulty.append(one)
            continue
        cause = _cause(state, one)
        many = of_kind[cause.kind]
        because = ""
        if _is_storm(cause.kind, many, running, settings):
            because = _consent(state, one, cause, at_ms)
            if not because:
                found.held.append(_unconfirmed(state, one, cause, (many, running)))
                continue
        left = settings.restarts_at_once - restarting[cause]
        if left <= 0:
            found.held.append(_behind_others(one, cause, restarting[cause]))
            continue
        one = _with_words(one, because)._replace(cause=cause)  # noqa: PLW2901  # the same gang
        if _waits_for_places(one):
            one = one._replace(slots=left)  # noqa: PLW2901  # it takes a slot only when it has places
        else:
            restarting[cause] += 1
        found.faulty.append(one)
    return found


def held_now(state: State, *, at_ms: int) -> list[HeldBack]:
    """Gangs of a cell whose restart is held back at a moment, by name.

    Args:
        state: The cell.
        at_ms: The moment.
    """
    faulty = examine_faults(state, list(state.fold.gangs), at_ms=at_ms).faulty
    return sorted(within_limits(state, faulty, at_ms=at_ms).held, key=lambda one: (one.namespace, one.name))


def restarts(one: Faulty) -> bool:
    """Whether a gang may restart as a whole."""
    return any(option.scope == "job" for option in one.options)


def _waits_for_places(one: Faulty) -> bool:
    """Whether a gang restarts as a whole only if there are places for all of it."""
    return all(option.needs_place for option in one.options if option.scope == "job")


def _is_storm(kind: str, many: int, running: int, settings: Settings) -> bool:
    """Whether so many restarts for faults of a kind are more than one source may cause."""
    is_share = many * _PERCENT > settings.restart_share_percent * running
    return kind in REPORTED and many > settings.restarts_at_once and is_share


def _consent(state: State, one: Faulty, cause: Cause, at_ms: int) -> str:
    """Why a gang may restart in a storm, as the end of a sentence; empty if it may not."""
    approval = state.faults.approval(*cause, at_ms=at_ms)
    if approval is not None:
        return f"{approval.by or 'a person'} approved it"
    for node in one.nodes:
        sources = sources_of(state, node, one.holding)
        if len(sources) >= CONFIRMED:
            return f"{' and '.join(sources)} report it"
    return ""


def _with_words(one: Faulty, because: str) -> Faulty:
    """A gang whose steps say why they are taken in a storm."""
    if not because:
        return one
    return one._replace(options=tuple(option._replace(cause=f"{option.cause}; {because}") for option in one.options))


def _unconfirmed(state: State, one: Faulty, cause: Cause, counts: tuple[int, int]) -> HeldBack:
    many, running = counts
    said = list(dict.fromkeys(word for node in one.nodes for word in sources_of(state, node, one.holding)))
    who = f"only {said[0]} reports it" if len(said) == 1 else "no two sources report it of one node"
    who = who if said else "who reports it is not known"
    share = state.fold.settings.restart_share_percent
    command = f"berth faults approve {cause.kind}{f' --domain {cause.domain}' if cause.domain else ''}"
    return _held(
        one,
        cause,
        f"{cause.kind} would restart {many} of {running} jobs, more than {share} percent, and {who}",
        f"{cause.words} would restart too many jobs, and {who}: it restarts when a second source reports it, or after"
        f" `{command}`",
        approvable=True,
    )


def _behind_others(one: Faulty, cause: Cause, count: int) -> HeldBack:
    return _held(
        one,
        cause,
        f"{count} {'job restarts' if count == 1 else 'jobs restart'} for {cause.words} already",
        f"as many jobs as may at a time restart for {cause.words}: it restarts when one of them is placed again",
        approvable=False,
    )


def _held(one: Faulty, cause: Cause, reason: str, why: str, *, approvable: bool) -> HeldBack:
    return HeldBack(one.holding.namespace, one.holding.name, cause, reason, why, approvable)


def _restarting(state: State) -> "Counter[Cause]":
    """Gangs that restart as a whole, by cause."""
    found: Counter[Cause] = Counter()
    for holding in state.fold.holdings.values():
        record = state.fold.gangs.get(holding.uid) if holding.ending == "fault" else None
        if record is not None and record.recovery is not None:
            found[Cause(record.recovery.kind, _domain(state, record.recovery.nodes))] += 1
    return found


def _by_kind(counts: Mapping[Cause, int]) -> "Counter[str]":
    found: Counter[str] = Counter()
    for cause, count in counts.items():
        found[cause.kind] += count
    return found


def _cause(state: State, one: Faulty) -> Cause:
    return Cause(one.options[0].kind, _domain(state, one.nodes))


def _domain(state: State, nodes: Iterable[str]) -> str:
    """Domain of the first node that is still there; empty when none is."""
    return next((domain for node in nodes if (domain := state.faults.domain(node))), "")
