"""Constraint state: what the constraints of pods depend on, from facts and from the ledger.

Pods of other schedulers are in facts of usage. Pods that Berth has placed are in the ledger, and their labels and
constraints in the request of their job; where a job has given up its name, only their number is known. All of this is a
function of the folded facts and the folded ledger, whatever their order was.

While no fact of usage is there and no job has constraints, nothing is counted, for nothing could be asked.

Longer than 400 lines because each kind of fact about constraints, and each change of a holding, has its step here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec

from berth.core.changes import NO_CHANGES, TOPOLOGY_CHANGED, Changes, ChangesBuilder, ConstraintChangesBuilder, JobKey
from berth.core.cluster.node_table import NodeTable
from berth.core.constraints.constraint_round import ConstraintView, no_constraints
from berth.core.constraints.preferences import has_preferences
from berth.core.constraints.selectors import NamespaceLabels, PodKey
from berth.core.constraints.topology import Topology
from berth.core.constraints.usage import Usage, check_usage, limits_of, usage_of
from berth.core.constraints.usage_changes import note_limits, note_usage
from berth.core.constraints.usage_index import TermIndex, UsageIndex
from berth.core.constraints.volumes import Volumes, has_failed
from berth.core.copies import copied
from berth.core.parity import differs
from berth.core.requests.gangs import Profiles
from berth.core.state.decided_claims import DecidedClaims
from berth.core.state.fact_checks import check_subject
from berth.core.state.holdings.pod_phases import rows_of
from berth.core.state.ledger import Holding, LedgerFold
from berth.schemas.envelope import Envelope, body_of
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen, is_repeat
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import PodConstraints, PodProfile, PodTerm
from berth.schemas.usage_facts import ClaimName, NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen, VolumeSeen

AttemptKey = tuple[str, int]
_NONE: Final = PodConstraints()


class Attempts(Protocol):
    """The nodes, and the attempts that hold them."""

    @property
    def table(self) -> NodeTable:
        """The nodes."""

    def attempts_of(self, name: JobKey) -> Iterable[AttemptKey]:
        """Held attempts under a name."""

    def pods_seen(self, holding: Holding) -> PodsSeen | None:
        """Pods of exactly this attempt, as the cluster shows them."""


class ConstraintState:
    """Usage of nodes and labels of namespaces, and the profiles of pods that follow from them.

    Args:
        fold: The folded ledger.
        jobs: Jobs by name.
        occupancy: The nodes, and the attempts that hold them.

    Attributes:
        claims: What placements say of claims.
        revision: Rises with each change of what constraints depend on beside the nodes, and with nothing else; equal
            revisions mean equal views.
    """

    def __init__(self, fold: LedgerFold, jobs: Mapping[JobKey, JobSeen], occupancy: Attempts) -> None:
        self._fold = fold
        self._jobs = jobs
        self._occupancy = occupancy
        self._table = occupancy.table
        self._topology = Topology(self._table)
        self._namespaces: dict[str, dict[str, str]] = {}
        self._volumes = Volumes()
        self._facts: dict[str, UsageSeen] = {}
        self._relabelled: Counter[tuple[str, int, int]] = Counter()
        """Ranks whose labels come from facts, not from their request."""
        self._constrained: dict[JobKey, JobSeen] = {}
        """Jobs with a task that has constraints."""
        self._index: UsageIndex | None = None
        self._is_index_shared = False
        """A copy has the index of the state until an attempt changes in it."""
        self._terms = TermIndex()
        self.revision = 0
        self.claims = DecidedClaims(fold, self._table.row, self._volumes)

    def fork(self, fold: LedgerFold, occupancy: Attempts) -> "ConstraintState":
        """A copy for copies of the fold and of the nodes: it follows their attempts, and no facts."""
        table = occupancy.table
        return copied(
            self,
            _fold=fold,
            _occupancy=occupancy,
            _table=table,
            _topology=self._topology.fork(table),
            _is_index_shared=True,
            claims=self.claims.fork(fold),
        )

    @property
    def namespaces(self) -> NamespaceLabels:
        """Labels of each namespace."""
        return self._namespaces

    @property
    def view(self) -> ConstraintView:
        """What a round starts from."""
        if self._index is None:
            return no_constraints(self._table)
        rows, decided = len(self._table), self.claims.all()
        return ConstraintView(self._index, self._topology, self._namespaces, rows, self._volumes, decided)

    @property
    def full_nodes(self) -> int:
        """Number of nodes that take no further pod, whatever it is."""
        return self.view.full_nodes

    def apply(self, envelope: Envelope, subject: str, changes: ChangesBuilder) -> bool:
        """Apply a fact of usage, of a namespace, or about volumes.

        Returns:
            Whether by it something is gone.

        Raises:
            DecodeError: It does not decode, contradicts itself, or is stored on another subject.
        """
        if envelope.kind == NamespaceSeen.KIND:
            return self._apply_namespace(body_of(envelope, NamespaceSeen), subject, changes)
        if envelope.kind != UsageSeen.KIND:
            return self._apply_volume(envelope, subject, changes)
        fact = body_of(envelope, UsageSeen)
        check_usage(fact)
        check_subject(subject, "usage", fact.domain)
        before = self._facts.pop(fact.domain, None)
        if fact.names:
            self._facts[fact.domain] = fact
        self.revision += not is_repeat(before, fact) and before is not self._facts.get(fact.domain)
        found = ConstraintChangesBuilder()
        self._follow_usage(before, fact, found)
        self._rest()
        changes.add(found.build())
        return not fact.names

    def _apply_namespace(self, fact: NamespaceSeen, subject: str, changes: ChangesBuilder) -> bool:
        check_subject(subject, "namespace", fact.name)
        before = self._namespaces.pop(fact.name, {})
        if not fact.gone:
            self._namespaces[fact.name] = fact.labels
        if before != self._namespaces.get(fact.name, {}) and self._index is not None:
            self.revision += 1
            found = ConstraintChangesBuilder()
            found.topology_changed = True
            found.namespaces_changed = self._terms.selects_namespaces
            changes.add(found.build())
        return fact.gone

    def _apply_volume(self, envelope: Envelope, subject: str, changes: ChangesBuilder) -> bool:
        fact: ClaimSeen | VolumeSeen | StorageSeen | UnboundSeen
        if envelope.kind == ClaimSeen.KIND:
            fact = body_of(envelope, ClaimSeen)
            check_subject(subject, "claim", fact.namespace, fact.name)
        elif envelope.kind == VolumeSeen.KIND:
            fact = body_of(envelope, VolumeSeen)
            check_subject(subject, "volume", fact.name)
        elif envelope.kind == UnboundSeen.KIND:
            fact = body_of(envelope, UnboundSeen)
            check_subject(subject, "unbound", fact.namespace, fact.name)
        else:
            fact = body_of(envelope, StorageSeen)
            check_subject(subject, "storage", fact.name)
        self.revision += self._volumes.apply(fact)
        if self._index is not None:
            changes.add(Changes(constraints=TOPOLOGY_CHANGED))
        return not has_failed(fact) if isinstance(fact, UnboundSeen) else fact.gone

    def _follow_usage(self, before: UsageSeen | None, fact: UsageSeen, found: ConstraintChangesBuilder) -> None:
        if self._index is None:
            if fact.names:
                self._wake(found)
            return
        source = ("usage", fact.domain)
        usage = usage_of(fact, self._table.row)
        limits = limits_of(fact, self._table.row)
        note_limits(self._index.limits.get(source), limits, found)
        had_limits = bool(self._index.limits)
        self._index.set_limits(source, limits)
        if had_limits and not self._index.limits:
            found.topology_changed = True  # nobody says any more what nodes have
        note_usage(self._index.replace(source, usage), usage, found)
        for terms, number in ((fact.terms, 1), (before.terms if before is not None else (), -1)):
            for term in terms:
                self._count_term(term, number, found)
        names = {(name.uid, name.attempt, name.rank): 1 for name in fact.relabelled}
        gone = {(name.uid, name.attempt, name.rank): 1 for name in (before.relabelled if before is not None else ())}
        self._relabelled.update(names)
        self._relabelled.subtract(gone)
        for uid, attempt in sorted({(uid, attempt) for uid, attempt, _ in names.keys() ^ gone.keys()}):
            found.add(self.recount((uid, attempt)).constraints)

    def recount(self, key: AttemptKey) -> Changes:
        """Count an attempt again: what it holds, what it gave back or what facts report of it has changed."""
        if self._index is None:
            return NO_CHANGES
        if self._is_index_shared:
            self._index, self._is_index_shared = self._index.fork(), False
        found = ConstraintChangesBuilder()
        had_claims = key in self.claims
        found.repulsion_eased = self.claims.note(key)
        usage = self._usage_of(key)
        before = self._index.replace(("attempt", *key), usage)
        self.revision += before != usage or had_claims or key in self.claims
        note_usage(before, usage, found)
        return found.build()

    def note_pods(self, name: JobKey) -> Changes:
        """Count the attempts of a name again, because a fact reported its pods: some are being deleted, or were."""
        if self._index is None:
            return NO_CHANGES
        found = ConstraintChangesBuilder()
        for key in list(self._occupancy.attempts_of(name)):
            holding = self._fold.holdings[key]
            if self._index.has_ending(("attempt", *key)) or self._ending(holding):
                found.add(self.recount(key).constraints)
        return found.build()

    def note_job(self, name: JobKey) -> Changes:
        """Follow the fact of a job that came or went."""
        job = self._jobs.get(name)
        is_constrained = job is not None and _is_constrained(job)
        before = self._constrained.pop(name, None)
        if job is not None and is_constrained:
            self._constrained[name] = job
        found = ConstraintChangesBuilder()
        if self._index is None:
            if is_constrained:
                self._wake(found)
            return found.build()
        for seen, number in ((job if is_constrained else None, 1), (before, -1)):
            for task in seen.request.tasks if seen is not None and seen.request is not None else ():
                for term in task.constraints.anti_affinity if task.constraints is not None else ():
                    self._count_term(term, number, found)
        found.add(self._note_all(name).constraints)
        self._rest()
        return found.build()

    def _note_all(self, name: JobKey) -> Changes:
        if self._index is None:
            return NO_CHANGES
        found = ConstraintChangesBuilder()
        for key in list(self._occupancy.attempts_of(name)):
            found.add(self.recount(key).constraints)
        return found.build()

    def begin(self) -> Changes:
        """Count everything again: the state was loaded."""
        self.revision += 1
        self._index = None
        self._constrained = {name: job for name, job in self._jobs.items() if _is_constrained(job)}
        found = ConstraintChangesBuilder()
        if self._facts or self._constrained:
            self._wake(found)
        return found.build()

    def _rest(self) -> None:
        """Cease to count where nothing could be asked any more, as a state that is loaded now does not begin to."""
        if not (self._facts or self._constrained):
            self.revision += self._index is not None
            self._index = None

    def _wake(self, found: ConstraintChangesBuilder) -> None:
        """Begin to count."""
        self.revision += 1
        self._index = UsageIndex()
        self._terms = TermIndex()
        self._relabelled = Counter(
            (name.uid, name.attempt, name.rank) for fact in self._facts.values() for name in fact.relabelled
        )
        for domain, fact in self._facts.items():
            source = ("usage", domain)
            self._index.set_limits(source, limits_of(fact, self._table.row))
            self._index.replace(source, usage_of(fact, self._table.row))
            for term in fact.terms:
                self._terms.add(term, 1)
        for job in self._constrained.values():
            for task in job.request.tasks if job.request is not None else ():
                for term in task.constraints.anti_affinity if task.constraints is not None else ():
                    self._terms.add(term, 1)
        self.claims.begin(self._fold.holdings)
        for key in self._fold.holdings:
            self._index.replace(("attempt", *key), self._usage_of(key))
        found.namespaces_changed = found.topology_changed = True

    def _count_term(self, term: PodTerm, number: int, found: ConstraintChangesBuilder) -> None:
        if self._terms.add(term, number):
            self.revision += 1
            found.terms_changed[term] = None

    def _usage_of(self, key: AttemptKey) -> Usage | None:
        """What an attempt uses; None when it holds nothing, or when its pods are in facts of usage."""
        holding = self._fold.holdings.get(key)
        if holding is None or holding.foreign:
            return None
        rows = [self._table.row(node) for node in holding.placement.names()]
        gone = set(holding.gone)
        reserved = {rank: self._table.row(pod.node) for rank, pod in holding.reserved().items()}
        found = Usage()
        found.pods = dict(Counter([*(row for rank, row in enumerate(rows) if rank not in gone), *reserved.values()]))
        job = self._jobs.get((holding.namespace, holding.name))
        request = job.request if job is not None and job.uid == holding.uid else None
        if request is None or sum(task.replicas for task in request.tasks) != len(rows):
            return found
        ending = self._ending(holding)
        start = 0
        for task in request.tasks:
            ranks = range(start, start + task.replicas)
            start += task.replicas
            self._add_task(found, holding, task, [(rank, rows[rank]) for rank in ranks if rank not in gone], ending)
            places = [(rank, reserved[rank]) for rank in ranks if rank in reserved]
            if places:
                self._add_task(found, holding, task, places, set())
        return found

    def _add_task(
        self,
        found: Usage,
        holding: Holding,
        task: Task,
        pods: list[tuple[int, int]],
        ending: set[int],
    ) -> None:
        """Add the pods of a task, as (rank, row)."""
        labels = tuple(sorted(task.labels.items()))
        relabelled = self._relabelled
        seen = [(rank, row) for rank, row in pods if not relabelled or relabelled[(*holding.key, rank)] <= 0]
        for is_ending in (False, True):
            rows = Counter(row for rank, row in seen if (rank in ending) == is_ending)
            if rows:
                group = PodKey(holding.namespace, labels, is_ending)
                _add(found.groups.setdefault(group, {}), rows, 1)
        wanted = task.constraints
        if wanted is None:
            return
        rows = Counter(row for _, row in pods)
        for term in wanted.anti_affinity:
            _add(found.terms.setdefault(term, {}), rows, 1)
        for port in wanted.ports:
            _add(found.ports.setdefault(port, {}), rows, 1)
        for name, amount in wanted.resources:
            _add(found.resources.setdefault(name, {}), rows, amount)
        for claim in wanted.claims:
            _add(found.claims.setdefault(ClaimName(holding.namespace, claim), {}), rows, 1)

    def _ending(self, holding: Holding) -> set[int]:
        seen = self._occupancy.pods_seen(holding)
        if seen is None or PodPhase.TERMINATING not in seen.phase:
            return set()
        return {rank for rank, phase in rows_of(holding, seen) if phase == PodPhase.TERMINATING}

    def profiles(self, namespace: str, request: JobRequest) -> Profiles:
        """Labels and constraints of the pods of each task of a request."""
        prefers = differs(self._fold.settings).preferred_terms
        pods = tuple(
            PodProfile(
                namespace,
                tuple(sorted(task.labels.items())),
                task.constraints or _NONE if prefers else _required(task.constraints or _NONE),
            )
            for task in request.tasks
        )
        return Profiles(pods, tuple(map(self._of_shape, pods)))

    def _of_shape(self, pod: PodProfile) -> PodProfile | None:
        """Profile in the shape of a pod; None when no constraint bears on it, as on most pods."""
        wanted = pod.constraints
        repelled = self._index is not None and self._terms.repels(PodKey(pod.namespace, pod.labels), self._namespaces)
        if repelled or wanted.affinity or wanted.anti_affinity or wanted.spread or has_preferences(wanted):
            return pod
        if not (wanted.ports or wanted.resources or wanted.claims):
            return None
        return PodProfile(pod.namespace if wanted.claims else "", (), wanted, is_whole=False)


def _required(wanted: PodConstraints) -> PodConstraints:
    """Constraints without preferences."""
    if not has_preferences(wanted):
        return wanted
    return msgspec.structs.replace(
        wanted, preferred_nodes=(), preferred_near=(), preferred_apart=(), preferred_spread=()
    )


def _add(amounts: dict[int, int], rows: Mapping[int, int], factor: int) -> None:
    for row, number in rows.items():
        amounts[row] = amounts.get(row, 0) + factor * number


def _is_constrained(job: JobSeen) -> bool:
    """Whether a job that was accepted has a task with constraints."""
    tasks = job.request.tasks if job.request is not None and job.state != "rejected" else ()
    return any(task.constraints is not None for task in tasks)
