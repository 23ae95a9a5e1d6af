"""Events that would make room for a waiting job: the smallest sets after which planning it again succeeds.

The search tries events alone first, then many in the order of declared ends and in the order of nearness, and removes
the events that are not needed. Every reported set was planned by the code that decides, on the state after the events.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from berth.core.explain.evidence import Event, Unblocking, Way
from berth.core.gangs import Gang
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import gang_of
from berth.core.scheduling.trial import Assumptions, Trial, may_take
from berth.core.scheduling.turn import MissingShards
from berth.core.state.cell import State
from berth.core.state.ledger import Holding, PodShare
from berth.core.topologies.registry import topology_of
from berth.schemas.facts import NodeHealth
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason, Refusal

WAYS_MAX: Final = 3
"""Upper bound of the reported ways."""
_SINGLES_MAX: Final = 64
"""Upper bound of the jobs, and of the nodes, that are tried alone."""
_ENDS_MAX: Final = 64
"""Upper bound of the events of one way."""
_PLANS_MAX: Final = 500
"""Upper bound of the plans of one search."""
_NEVER: Final = 1 << 62
"""Later than any declared end."""
_BY_PLACE: Final = frozenset({"no-leaf", "no-rows", "no-leaves", "no-blocks"})
"""Refusals of jobs that need nodes at known places; added nodes have none."""

T = TypeVar("T")
Key = tuple[str, int]
"""Identity of a holding: uid and attempt."""
Near = tuple[int, int, str]
"""Sort key of a node that may take a pod: its domain for planned jobs, its missing chips, its name."""


class Waiting(NamedTuple):
    """A gang that was refused.

    Attributes:
        gang: The gang.
        refusal: Its refusal.
        laid: Holdings of earlier verdicts of the same record, which are not in the state.
        missing_shards: Shards that did not answer.
    """

    gang: Gang
    refusal: Refusal
    laid: Sequence[Holding] = ()
    missing_shards: MissingShards = MissingShards()


class Ending(NamedTuple):
    """A holding that may end, or held places that may become free.

    Attributes:
        near: Sort key of the nearest of its nodes.
        event: Its end.
    """

    near: Near
    event: Event


def end_of(state: State, holding: Holding) -> int:
    """Expected end of a job: its placement plus its declared run time; 0 without one."""
    job = state.jobs.get((holding.namespace, holding.name))
    request = job.request if job is not None and job.uid == holding.uid else None
    return holding.at_ms + request.run_ms if request is not None and request.run_ms else 0


def unblocking(state: State, waits: Waiting, *, plans_max: int = _PLANS_MAX) -> Unblocking:
    """Events that would make room for a refused gang.

    Args:
        state: The cell before the refusal; not changed.
        waits: The gang and its refusal.
        plans_max: Plans after which the search stops.
    """
    gang, refusal = waits.gang, waits.refusal
    if refusal.code == "no-topology":
        return Unblocking([Way([Event("topology-known")])])
    ahead = _ahead(state, refusal)
    both = [gang] if ahead is None else [ahead, gang]
    placed = [Event("job-placed", job=refusal.ahead)] if refusal.ahead else []
    found = _searched(state, waits, both, placed, plans_max)
    if ahead is None or any(not _needs_more(way) for way in found.ways):
        return found
    alone = _searched(state, waits, [gang], [Event("job-over", job=refusal.ahead)], plans_max)
    return Unblocking(
        sorted([*found.ways, *alone.ways], key=_way_key)[:WAYS_MAX],
        ends_help=found.ends_help or alone.ends_help,
        ends_over=max(found.ends_over, alone.ends_over),
        is_whole=found.is_whole and alone.is_whole,
    )


def _searched(
    state: State, waits: Waiting, gangs: Sequence[Gang], first: Sequence[Event], plans_max: int
) -> Unblocking:
    """Ways after which all of the gangs fit; each begins with the events ``first``."""
    trial = Trial(state, gangs, laid=waits.laid, missing_shards=waits.missing_shards, plans_max=plans_max)
    return _Search(trial, gangs, first, waits.refusal).run()


def _ahead(state: State, refusal: Refusal) -> Gang | None:
    """The waiting gang ahead of this one."""
    namespace, _, name = refusal.ahead.partition("/")
    job = state.jobs.get((namespace, name))
    if job is None or job.request is None or job.state != "accepted":
        return None
    known = state.fold.gangs.get(job.uid)
    if known is not None and known.phase != "waiting":
        return None
    attempt = known.attempt if known is not None else 1
    profiles = state.constraints.profiles(job.namespace, job.request)
    found = gang_of(job, job.request, attempt=attempt, settings=state.fold.settings, profiles=profiles)
    return found if found.invalid is None else None


class _Search:
    """A search for ways. Every way is minimal unless the search stopped at its limit."""

    def __init__(self, trial: Trial, gangs: Sequence[Gang], first: Sequence[Event], refusal: Refusal) -> None:
        self._trial = trial
        self._state = trial.state
        self._gangs = gangs
        self._first = first
        self._code = refusal.code
        self._shapes = list(dict.fromkeys(shape for gang in gangs for shape, _ in gang.request_class))
        self._near = self._nearness()
        self._endings = dict(self._all_endings())
        self._unusable = self._unusable_rows()
        self._ways: dict[tuple[str, ...], Way] = {}

    def run(self) -> Unblocking:
        """All ways that are found."""
        trial = self._trial
        if trial.fits(Assumptions()):
            return Unblocking([self._way([] if self._first else [Event("next-round")])])
        self._shards()
        by_end = sorted(self._endings, key=lambda key: (self._endings[key].event.end_ms or _NEVER, *self._rank(key)))
        by_near = sorted(self._endings, key=self._rank)
        self._singles(by_near)
        is_hopeless = not trial.fits(Assumptions(ended=frozenset(by_near)))
        if not self._ways:
            if not is_hopeless:
                orders = [by_near, by_end] if any(self._endings[key].event.end_ms for key in by_end) else [by_near]
                for order in orders:
                    self._several([("end", key) for key in order])
            else:
                self._several([*(("well", row) for row in self._unusable), *(("end", key) for key in by_near)])
        self._more_nodes()
        ways = sorted(self._ways.values(), key=_way_key)[:WAYS_MAX]
        is_far = not is_hopeless and all(_needs_more(way) for way in ways)
        return Unblocking(
            ways,
            ends_help=not is_hopeless or trial.is_exhausted,
            ends_over=_ENDS_MAX if is_far and not trial.is_exhausted else 0,
            is_whole=not trial.is_exhausted,
        )

    def _shards(self) -> None:
        """Try the shards that did not answer: each alone, then all."""
        missing_shards = self._trial.missing_shards
        for back in [*([shard] for shard in missing_shards.missing), list(missing_shards.missing)]:
            rest = [shard for shard in missing_shards.missing if shard not in back]
            if back and self._trial.fits(Assumptions(), missing_shards=MissingShards(missing_shards.shards, rest)):
                self._keep([Event("scorer-answers", shards=back)])
                return

    def _singles(self, by_near: Sequence[Key]) -> None:
        for key in by_near[:_SINGLES_MAX]:
            if self._trial.fits(Assumptions(ended=frozenset({key}))):
                self._keep([self._endings[key].event])
        for row in list(self._unusable)[:_SINGLES_MAX]:
            if self._trial.fits(Assumptions(healthy=frozenset({row}))):
                self._keep([self._repair_event(row)])

    def _several(self, order: Sequence[tuple[str, Key | int]]) -> None:
        """Try the first of some changes after which there is room, without those that are not needed."""

        def fits(chosen: Sequence[tuple[str, Key | int]]) -> bool:
            return self._trial.fits(_assumptions(chosen))

        found = reduced(_shortest(order[:_ENDS_MAX], fits), fits)
        if found and fits(found):
            self._keep([self._event(change) for change in found])

    def _more_nodes(self) -> None:
        """Find how many added nodes make room, for jobs that do not need nodes at known places."""
        model = self._trial.model()
        is_easy = any(len(way.events) == len(self._first) + 1 for way in self._ways.values())
        if self._code in _BY_PLACE or model is None or is_easy:
            return
        pods = sum(gang.pods for gang in self._gangs)
        few, many = 0, 1
        while not self._trial.fits(Assumptions(added=many)):
            if many >= pods or self._trial.is_exhausted:
                return
            few, many = many, min(2 * many, pods)
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if self._trial.fits(Assumptions(added=middle)) else (middle, many)
        product = self._state.table.classes[model.node_class].product
        self._keep([Event("nodes-come", nodes=many, product=product)])

    def _keep(self, events: Sequence[Event]) -> None:
        way = self._way(events)
        self._ways.setdefault(tuple(_event_key(event)[1] for event in way.events), way)

    def _way(self, events: Sequence[Event]) -> Way:
        ordered = [*self._first, *sorted(events, key=_event_key)]
        ends = [event.end_ms for event in ordered]
        return Way(ordered, max(ends) if all(ends) else 0, is_minimal=not self._trial.is_exhausted)

    def _event(self, change: tuple[str, Key | int]) -> Event:
        _, what = change
        return self._endings[what].event if isinstance(what, tuple) else self._repair_event(what)

    def _all_endings(self) -> Iterable[tuple[Key, Ending]]:
        """Holdings, and places held for jobs that start anew, with resources that the gangs could use."""
        state = self._state
        for key, holding in sorted(self._trial.holdings.items()):
            pods = [pod for pod in state.held_by(key) if pod.mask or pod.cpu_milli or pod.memory_mib]
            event = Event(
                "job-ends",
                job=f"{holding.namespace}/{holding.name}",
                uid=holding.uid,
                attempt=holding.attempt,
                since_ms=holding.at_ms,
                end_ms=end_of(state, holding),
                is_ending=bool(holding.ending),
            )
            if (ending := self._ending(event, pods)) is not None:
                yield key, ending
        for key, held in sorted(self._trial.held.items()):
            event = Event(
                "hold-ends",
                job=f"{held.namespace}/{held.name}",
                uid=held.uid,
                attempt=held.attempt,
                end_ms=held.until_ms,
            )
            if (ending := self._ending(event, held.places().values())) is not None:
                yield key, ending

    def _ending(self, event: Event, pods: Collection[PodShare]) -> Ending | None:
        """An end with the size of what it frees; None if that is the gangs' own, or no node of it may take a pod."""
        nodes = dict.fromkeys(pod.node for pod in pods)
        near = min((self._near[node] for node in nodes if node in self._near), default=None)
        if near is None or event.uid in {gang.uid for gang in self._gangs}:
            return None
        sized = msgspec.structs.replace(event, nodes=len(nodes), chips=sum(len(pod.chips) for pod in pods))
        return Ending(near, sized)

    def _nearness(self) -> dict[str, Near]:
        """Sort key of each node that may take a pod."""
        table = self._state.table
        scorer = Scorer(table, self._state.shares, self._state.fold.settings)
        near: dict[str, Near] = {}
        for shape in self._shapes:
            may = [may_take(shape, key) for key in table.classes]
            by_jobs = topology_of(
                shape.demand
            ).heeds_jobs  # they decide how the gang may use a group, whatever the node is
            reasons, _ = scorer.evaluate(shape)
            order = self._domain_order(shape, reasons == NodeReason.FITS)
            for row in np.flatnonzero(table.present[table.view()]).tolist():
                name = table.names[row]
                lack = max(0, shape.chips - int(table.free[row]).bit_count())
                place = (order[table.domain[row]], lack, name)
                if may[table.node_class[row]] or by_jobs:
                    near[name] = min(near.get(name, place), place)
        return near

    def _domain_order(self, shape: Shape, fits: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Mapping[int, int]:
        """Sort key of each domain: most usable nodes first for planned jobs, equal for others."""
        table = self._state.table
        domains = table.domain[table.view()]
        if not shape.is_planned:
            return dict.fromkeys(domains.tolist(), 0)
        usable = np.bincount(domains[fits & (domains >= 0)], minlength=len(table.domains)).tolist()
        ordered = sorted(range(len(table.domains)), key=lambda domain: (-usable[domain], table.domains[domain]))
        return {domain: place for place, domain in enumerate(ordered)}

    def _rank(self, key: Key) -> tuple[Near, str, Key]:
        """Sort key of a holding in the order of nearness."""
        near, event = self._endings[key]
        return near, event.job, key

    def _unusable_rows(self) -> dict[int, list[str]]:
        """Nodes that may take a pod once they are healthy, ready and schedulable, nearest first, and their problems."""
        state = self._state
        rows = [state.table.row_of[name] for name, _ in sorted(self._near.items(), key=lambda item: item[1])]
        return {row: wrong for row in rows if (wrong := wrong_with(state, row))}

    def _repair_event(self, row: int) -> Event:
        return Event("node-well", node=self._state.table.names[row], wrong=self._unusable[row])


def wrong_with(state: State, row: int) -> list[str]:
    """Problems of a node; empty for one that is healthy, ready and schedulable."""
    table = state.table
    key = table.classes[table.node_class[row]]
    found = ["cordoned"] if key.cordoned else []
    found += [] if key.ready else ["not ready"]
    if table.level[row] > NodeHealth.OK or table.unhealthy[row] or table.network[row] or not table.network_known[row]:
        found.append("unhealthy")
    elif state.fold.settings.needs_health and not table.spoken[row]:
        found.append("health unknown")
    return found


def _assumptions(chosen: Iterable[tuple[str, Key | int]]) -> Assumptions:
    parts = list(chosen)
    return Assumptions(
        ended=frozenset(what for _, what in parts if isinstance(what, tuple)),
        healthy=frozenset(what for _, what in parts if isinstance(what, int)),
    )


def _shortest(order: Sequence[T], fits: Callable[[Sequence[T]], bool]) -> list[T]:
    """Shortest prefix that fits, by doubling and bisection; empty if none. Assumes that fitting is monotonic."""
    few, many = 0, 1
    while not fits(order[:many]):
        if many >= len(order):
            return []
        few, many = many, min(2 * many, len(order))
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if fits(order[:middle]) else (middle, many)
    return list(order[:many])


def reduced(items: Sequence[T], fits: Callable[[Sequence[T]], bool]) -> list[T]:
    """Remove items, the later ones first, until none can be left out alone; the rest still fits."""
    kept = list(items)
    size = len(kept) // 2
    while size:
        before = len(kept)
        for start in range((len(kept) - 1) // size * size, -1, -size):
            fewer = kept[:start] + kept[start + size :]
            if fewer and fits(fewer):
                kept = fewer
        if size > 1 or len(kept) == before:
            size //= 2
    return kept


def _event_key(event: Event) -> tuple[int, str]:
    name = f"{event.kind} {event.job} {event.uid} {event.attempt} {event.node} {event.nodes} {event.shards}"
    return event.end_ms or _NEVER, name


def _needs_more(way: Way) -> bool:
    return any(event.kind == "nodes-come" for event in way.events)


def _way_key(way: Way) -> tuple[bool, int, int, list[tuple[int, str]]]:
    """Sort key of a way: ways without added nodes first, then the fewest events, then the earliest."""
    return _needs_more(way), len(way.events), way.at_ms or _NEVER, [_event_key(event) for event in way.events]
