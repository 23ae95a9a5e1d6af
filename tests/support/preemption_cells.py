"""Cells on which a search for victims is tried: gangs run, one waits, and the gangs that are found really end."""

from collections.abc import Mapping, Sequence

import msgspec

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.placement.projected_state import ProjectedState
from berth.core.preemption.footprints import Footprints
from berth.core.preemption.model import NoVictims, Preemptor, RunningGang, Terms, VictimSet
from berth.core.preemption.search import Ground, Search
from berth.core.queues.charges import Holding, charge_of_placement
from berth.core.requests.gangs import gang_of
from berth.core.scheduling.quotas import refused_now
from berth.core.state.cell import State
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Release
from berth.schemas.nodes import NodeDescription
from berth.schemas.placement import Placement
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP, DEFAULT, Queue
from tests.support.cells import a_node
from tests.support.core_cells import SUBJECTS, CoreCell

NPU = "huawei.com/Ascend910"
HOUR_MS = 3_600_000
TERMS = Terms()


def chips(number: int) -> dict[str, int]:
    return {NPU: number * CHIP}


def leaves(number: int, width: int = 2) -> list[NodeDescription]:
    """Nodes of 8 chips below leaf switches: ``0-0``, ``0-1``, ..."""
    return [a_node(f"{leaf}-{index}", leaf=f"leaf-{leaf}") for leaf in range(number) for index in range(width)]


class PreemptionCell(CoreCell):
    """A cell whose gangs may go.

    Args:
        nodes: The nodes.
        queues: Queues; none for a cell in which queues do nothing.
    """

    def __init__(self, nodes: Sequence[NodeDescription], *queues: Queue, **settings: object) -> None:
        super().__init__(nodes, **{"queue_policy": "skip", "queues": 2 if queues else 0, **settings})  # type: ignore[arg-type]  # settings
        for queue in queues:
            self.queue(queue)
        self.now_ms = 10 * HOUR_MS
        self.footprints = Footprints()
        self.facts: dict[str, Mapping[str, object]] = {}
        """What differs of a running gang, by name of the job."""
        self.taken: list[tuple[Gang, Placement]] = []
        self.queue_evictions: dict[str, int] = {}
        self.silent: Fits | None = None

    def queue(self, queue: Queue) -> None:
        self.fact(SUBJECTS.fact_queue(queue.name), QueueSeen(queue))

    def limit(self, queue: Queue, most: int) -> None:
        """Give a queue a capability in chips."""
        self.queue(msgspec.structs.replace(queue, capability=chips(most)))

    def runs(self, request: JobRequest, **facts: object) -> None:
        """Place a job, and say what else is known of its gang: fields of the gang, or of what queues count."""
        self.place(request)
        self.facts[request.name] = facts

    def runs_if_fits(self, request: JobRequest) -> None:
        """Place a job if there is room for it."""
        self.ask(request)
        if not all(verdict.placement for verdict in self.decide()):
            self.take_back(request.name)

    def running(self) -> list[RunningGang]:
        return [self._gang(key) for key in self.state.fold.holdings]

    def _gang(self, key: tuple[str, int]) -> RunningGang:
        holding = self.state.fold.holdings[key]
        job = self.state.jobs[holding.namespace, holding.name]
        facts = dict(self.facts.get(holding.name, {}))
        counted: dict[str, object] = {
            "uid": holding.uid,
            "queue": holding.queue or DEFAULT,
            "charge": charge_of_placement(holding.placement),
            "namespace": holding.namespace,
            "priority": job.request.priority if job.request is not None else 0,
            "start": holding.ledger_seq,
            "is_leaving": bool(holding.ending),
        }
        counted |= {name: facts.pop(name) for name in [*facts] if name in Holding.__struct_fields__}
        held: dict[str, object] = {
            "attempt": holding.attempt,
            "chips": len(holding.placement.chips),
            "start_ms": self.now_ms - HOUR_MS,
        }
        return RunningGang(Holding(**counted), **(held | facts))  # type: ignore[arg-type]  # a builder for tests

    def search(self, terms: Terms = TERMS) -> Search:
        shares = self.state.queues.shares()
        usage = self.state.queues.usage(shares.tree) if shares is not None else None
        return Search(
            Ground(
                self.state,
                self.scheduler.new_scorer(),
                self.running(),
                self.now_ms,
                silent=self.silent,
                taken=self.taken,
                shares=shares,
                usage=usage,
                queue_evictions=self.queue_evictions,
            ),
            terms,
            self.footprints,
        )

    def preemptor(self, request: JobRequest, **facts: object) -> Preemptor:
        gang = gang_of_request(self.state, request)
        return Preemptor(gang, **facts)  # type: ignore[arg-type]  # as above

    def found(self, request: JobRequest, terms: Terms = TERMS, **facts: object) -> VictimSet | NoVictims:
        return self.search(terms).find(self.preemptor(request, **facts))

    def victims(self, request: JobRequest, terms: Terms = TERMS, **facts: object) -> list[str] | str:
        """Names of the gangs that would end for a job, or the code of why none does."""
        return named(self.found(request, terms, **facts))

    def starts(self, preemptor: Preemptor) -> bool:
        """Whether a gang starts with nobody's end."""
        refused = refused_now(self.state, preemptor.gang)
        projection = ProjectedState(self.state, self.scheduler.new_scorer(), None)
        return refused is None and projection.plan(preemptor.gang) is not None

    def end(self, *names: str) -> None:
        """Let gangs end."""
        keys = sorted((one.uid, one.attempt) for one in self.state.fold.holdings.values() if one.name in names)
        self.release(*(Release(uid, attempt, "succeeded") for uid, attempt in keys))


def gang_of_request(state: State, request: JobRequest) -> Gang:
    """A job as it waits, whether it was refused before or not."""
    seen = JobSeen(request.namespace, request.name, request.uid, "accepted", 1, 1, 1, request)
    profiles = state.constraints.profiles(request.namespace, request)
    return gang_of(seen, request, attempt=1, settings=state.fold.settings, profiles=profiles)


def named(found: VictimSet | NoVictims) -> list[str] | str:
    if isinstance(found, NoVictims):
        return found.code
    return [victim.uid.removeprefix("uid-") for victim in found.victims]


def nodes_of(found: VictimSet | NoVictims) -> list[str]:
    assert isinstance(found, VictimSet), found
    return sorted(set(found.placement.names()))


class Contest:
    """Gangs that want the chips of a cell, and displace each other as searches say, until nobody can.

    Args:
        cell: The cell.
        keeps_bar: Whether gangs that were reclaimed are barred as they should be.
    """

    def __init__(self, cell: PreemptionCell, *, keeps_bar: bool = True) -> None:
        self.cell = cell
        self.waiting: list[JobRequest] = []
        self.evictions: list[tuple[str, str]] = []
        """Preemptor and victim of each."""
        self._reclaimed: set[str] = set()
        self._keeps_bar = keeps_bar
        self._attempts = 0

    def go_on(self, evictions_max: int) -> bool:
        """Let gangs start and displace others; returns whether it comes to an end before so many evictions."""
        while len(self.evictions) < evictions_max:
            if not any(self._starts(request) for request in [*self.waiting]):
                return True
        return False

    def _starts(self, request: JobRequest) -> bool:
        found = self._placed(request)
        if found is None:
            return False
        self.waiting.remove(request)
        if isinstance(found, VictimSet):
            self._displace(request, found)
        self._attempts += 1
        # Each attempt is a job of its own: a job that has ended is not asked for again.
        again = msgspec.structs.replace(request, uid=f"{base_of(request.uid)}/{self._attempts}")
        again = msgspec.structs.replace(again, name=f"{base_of(request.name)}.{self._attempts}")
        self.cell.ask(again)
        (verdict,) = self.cell.decide()
        assert verdict.placement is not None, "it gets the room that was made for it"
        return True

    def _placed(self, request: JobRequest) -> VictimSet | bool | None:
        """True for a gang that starts beside all others, or its victims; None for one that waits."""
        cell = self.cell
        search = cell.search()
        barred = self._keeps_bar and base_of(request.name) in self._reclaimed
        preemptor = cell.preemptor(request, was_reclaimed=barred)
        found = search.find(preemptor)
        if cell.starts(preemptor):
            return True
        return found if isinstance(found, VictimSet) else None

    def _displace(self, request: JobRequest, found: VictimSet) -> None:
        uids = {victim.uid: victim for victim in found.victims}
        held = [one for one in self.cell.state.fold.holdings.values() if one.uid in uids]
        for one in held:
            job = self.cell.state.jobs[one.namespace, one.name]
            assert job.request is not None
            self.waiting.append(job.request)
            self.evictions.append((base_of(request.name), base_of(one.name)))
            if uids[one.uid].is_reclaimed:
                self._reclaimed.add(base_of(one.name))
        self.cell.end(*[one.name for one in held])


def base_of(name: str) -> str:
    """Name of a job without its attempt."""
    return name.split("/", 1)[0].split(".", 1)[0]
