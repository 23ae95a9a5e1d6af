"""Fault inputs: the facts beside those about pods on which decisions about faults depend, and attempts by node."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from berth.core.changes import ChangesBuilder, JobKey
from berth.core.cluster.node_packing import unpack_health
from berth.core.cluster.node_table import NodeTable
from berth.core.state.fact_checks import check_approval, check_replacements, check_subject
from berth.core.state.kept_facts import Effect
from berth.core.state.ledger import Folded, Holding, LedgerFold
from berth.core.state.lost_nodes import LostNodes
from berth.schemas.envelope import Envelope, body_of
from berth.schemas.facts import HealthSeen, JobSeen, NodeHealth, NodesSeen
from berth.schemas.fault_facts import ApprovalSeen, BackupPod, GroupSeen, ReplacementsSeen
from berth.schemas.nodes import NodeCondition

AttemptKey = tuple[str, int]
_NO_FAULTS: Final = (0, 0, 0)
_NO_GROUP: Final = GroupSeen("", "")


class FaultInputs:
    """Newest facts by what they speak of.

    Args:
        fold: The folded ledger.
        table: The nodes.
        jobs: Jobs by name.
    """

    def __init__(self, fold: LedgerFold, table: NodeTable, jobs: Mapping[JobKey, JobSeen]) -> None:
        self._fold = fold
        self._jobs = jobs
        self._subjects: dict[JobKey, str] = {}
        self.replacements: dict[JobKey, ReplacementsSeen] = {}
        self.nodes_ms: dict[str, int] = {}
        """Time of the newest fact of nodes of each domain."""
        self._table = table
        self._groups: dict[JobKey, GroupSeen] = {}
        self._group_of: dict[JobKey, JobKey] = {}
        """PodGroup of each job."""
        self._health: dict[str, HealthSeen] = {}
        self._unhealthy: dict[str, dict[str, NodeCondition]] = {}
        """Nodes of a domain that are not healthy, as far as they were asked for."""
        self.approvals: dict[tuple[str, str], ApprovalSeen] = {}
        """What people approved and did not withdraw, by kind and domain; also what is over."""
        self.lost = LostNodes()
        """Nodes with attempts that are gone, not ready, or to be left."""
        self._attempts_on: dict[str, dict[AttemptKey, None]] = {}
        self._nodes_of: dict[AttemptKey, tuple[str, ...]] = {}

    def apply(self, envelope: Envelope, subject: str, found: ChangesBuilder) -> Effect:
        """Note which ranks have new pods, or what a person approved.

        Args:
            envelope: The fact.
            subject: Subject on which it is stored.
            found: Receives which gangs to examine.

        Raises:
            DecodeError: It is damaged, or on the subject of something else.
        """
        if envelope.kind == ApprovalSeen.KIND:
            approval = body_of(envelope, ApprovalSeen)
            check_approval(approval)
            check_subject(subject, "approval", approval.kind, approval.domain)
            self._note_approval(approval, found)
            return "gone" if approval.gone else "folded"
        fact = body_of(envelope, ReplacementsSeen)
        check_subject(subject, "replacement", fact.namespace, fact.job)
        check_replacements(fact)
        before = self.replacements.get((fact.namespace, fact.job))
        if fact.backups or (before is not None and before.backups):
            found.pods_changed[fact.namespace, fact.job] = None
        self.note_replacements(fact)
        self._subjects[fact.namespace, fact.job] = subject
        found.gangs_to_examine[fact.uid] = None
        return "folded" if fact.ranks or fact.backups else "gone"

    def _note_approval(self, fact: ApprovalSeen, found: ChangesBuilder) -> None:
        """Note what a person approved or withdrew; all attempts are examined again, because that is rare."""
        if fact.gone:
            self.approvals.pop((fact.kind, fact.domain), None)
        else:
            self.approvals[fact.kind, fact.domain] = fact
        found.gangs_to_examine.update((uid, None) for uid, _ in self._nodes_of)

    def approvals_at(self, at_ms: int) -> list[ApprovalSeen]:
        """Approvals that count at a moment, by kind and domain."""
        return [one for _, one in sorted(self.approvals.items()) if at_ms < one.until_ms]

    def approval(self, kind: str, domain: str, *, at_ms: int) -> ApprovalSeen | None:
        """The approval of restarts for a cause that counts at a moment; None without.

        Args:
            kind: Kind of the faults.
            domain: Domain of the nodes; empty for nodes that are gone.
            at_ms: The moment.
        """
        found = self.approvals.get((kind, domain))
        return found if found is not None and at_ms < found.until_ms else None

    def note_nodes(self, fact: NodesSeen, before: Mapping[int, tuple[bool, int]], found: ChangesBuilder) -> None:
        """Examine the attempts on nodes of a domain that came, went, or changed whether they are ready or drained.

        Args:
            fact: The nodes, which the table has already.
            before: What :meth:`readiness` gave before that.
            found: Receives which gangs to examine.
        """
        self.nodes_ms[fact.domain] = fact.at_ms
        now = self.readiness(fact.domain)
        rows = sorted(row for row in before.keys() | now.keys() if before.get(row) != now.get(row))
        names = [self._table.names[row] for row in rows]
        self._note_lost(names, fact.domain, fact.at_ms, moving=fact.moving)
        self._examine_on(names, found)

    def follow(self, folded: Folded, found: ChangesBuilder) -> None:
        """Note on which nodes the attempts of a record are, and examine those that recover.

        Args:
            folded: What the record changed.
            found: Receives which gangs to examine.
        """
        for holding in folded.given_back:
            self._drop(holding.key)
        for holding in (*folded.taken, *(one for one, _ in folded.freed), *folded.moved):
            self._put(holding)
        found.gangs_to_examine.update((holding.uid, None) for holding in folded.moved)

    def begin(self) -> None:
        """Note on which nodes all attempts are."""
        self._attempts_on.clear()
        self._nodes_of.clear()
        for holding in self._fold.holdings.values():
            self._put(holding)
        self.lost.keep(self._attempts_on)

    def attempts_on(self, node: str) -> Iterable[AttemptKey]:
        """Attempts that Berth has placed on a node, or that have it reserved."""
        return self._attempts_on.get(node, ())

    def group_of(self, job: JobKey) -> GroupSeen | None:
        """What the PodGroup of a job says about faults."""
        key = self._group_of.get(job)
        return self._groups.get(key) if key is not None else None

    def groups(self) -> list[GroupSeen]:
        """What all PodGroups say about faults, by name."""
        return [self._groups[key] for key in sorted(self._groups)]

    def note_group(self, fact: GroupSeen, found: ChangesBuilder) -> None:
        """Note what a PodGroup says about faults.

        Args:
            fact: The fact.
            found: Receives which gangs to examine: those of jobs that it concerns or did before.
        """
        key = (fact.namespace, fact.name)
        before = self._groups.pop(key, _NO_GROUP)
        jobs = dict.fromkeys((fact.namespace, name) for name in (*before.jobs, *fact.jobs))
        for job in jobs:
            if self._group_of.get(job) == key:
                del self._group_of[job]
        if not fact.gone and (fact.labels or fact.annotations):
            self._groups[key] = fact
            self._group_of.update(dict.fromkeys(((fact.namespace, name) for name in fact.jobs), key))
        known = (self._jobs.get(job) for job in jobs)
        found.gangs_to_examine.update((job.uid, None) for job in known if job is not None)

    def note_replacements(self, fact: ReplacementsSeen) -> None:
        """Note which ranks have new pods that wait for a place, and which have backup pods."""
        if fact.ranks or fact.backups:
            self.replacements[fact.namespace, fact.job] = fact
        else:
            self.replacements.pop((fact.namespace, fact.job), None)

    def forget(self, job: JobKey) -> list[str]:
        """Forget the new pods of a job that gave up its name; returns the subjects of the facts."""
        self.replacements.pop(job, None)
        subject = self._subjects.pop(job, None)
        return [subject] if subject is not None else []

    def waiting(self, job: JobKey, uid: str) -> dict[int, int]:
        """Ranks of a job whose new pods wait for a place, and since when each of them does."""
        fact = self.replacements.get(job)
        return fact.waiting_since() if fact is not None and fact.uid == uid else {}

    def backups(self, job: JobKey, uid: str) -> Mapping[int, str]:
        """Backup pods of a job that exist: uids by rank."""
        return {one.rank: one.uid for one in self.backup_pods(job, uid)}

    def backup_pods(self, job: JobKey, uid: str) -> Sequence[BackupPod]:
        """Backup pods of a job that exist, ascending by rank."""
        fact = self.replacements.get(job)
        return fact.backups if fact is not None and fact.uid == uid else ()

    def note_health(self, fact: HealthSeen, found: ChangesBuilder) -> None:
        """Note the health of a domain, and examine the attempts on nodes whose faults changed.

        Args:
            fact: The health.
            found: Receives which gangs to examine.
        """
        before = self.unhealthy(fact.domain) if self._attempts_on else {}
        self._health[fact.domain] = fact
        self._unhealthy.pop(fact.domain, None)
        now = self.unhealthy(fact.domain) if self._attempts_on else {}
        names = before.keys() | now.keys()
        changed = sorted(name for name in names if _faults(before.get(name)) != _faults(now.get(name)))
        self._note_lost(changed, fact.domain, fact.at_ms)
        self._examine_on(changed, found)

    def health_ms(self, domain: str) -> int:
        """Time of the newest fact about the health of a domain; 0 without."""
        fact = self._health.get(domain)
        return fact.at_ms if fact is not None else 0

    def unhealthy(self, domain: str) -> Mapping[str, NodeCondition]:
        """Nodes of a domain that are not healthy, by name."""
        found = self._unhealthy.get(domain)
        if found is None:
            fact = self._health.get(domain)
            found = self._unhealthy[domain] = {
                one.name: one for one in (unpack_health(fact) if fact is not None else ()) if any(_faults(one))
            }
        return found

    def domain(self, node: str) -> str:
        """Domain of a node; empty for one that is gone."""
        row = self._table.row_of.get(node)
        index = -1 if row is None else int(self._table.domain[row])
        return self._table.domains[index] if index >= 0 else ""

    def condition(self, node: str) -> NodeCondition | None:
        """Condition of a node that is not healthy; None for any other."""
        return self.unhealthy(self.domain(node)).get(node)

    def readiness(self, domain: str) -> dict[int, tuple[bool, int]]:
        """Nodes of a domain with attempts by row: whether they are ready, and from when on they are drained."""
        table = self._table
        if not self._attempts_on:
            return {}
        return {
            row: (table.classes[int(table.node_class[row])].ready, table.drained_ms.get(row, 0))
            for row in table.rows_of_domain(domain)
            if table.names[row] in self._attempts_on
        }

    def note_drained(self, before: Mapping[int, int], found: ChangesBuilder) -> None:
        """Examine the attempts on nodes that are drained from another moment on than before.

        Args:
            before: From when on nodes were drained, by row.
            found: Receives which gangs to examine.
        """
        now = self._table.drained_ms
        rows = sorted(row for row in before.keys() | now.keys() if before.get(row) != now.get(row))
        self._examine_on((self._table.names[row] for row in rows), found)

    def _examine_on(self, nodes: Iterable[str], found: ChangesBuilder) -> None:
        for name in nodes:
            found.gangs_to_examine.update((uid, None) for uid, _ in self._attempts_on.get(name, ()))

    def _put(self, holding: Holding) -> None:
        if holding.foreign or holding.key not in self._fold.holdings:
            self._drop(holding.key)
            return
        names = dict.fromkeys(nodes_of(holding))
        new = [name for name in names if name not in self._attempts_on]
        for name in names:
            self._attempts_on.setdefault(name, {})[holding.key] = None
        self._drop(holding.key, names)
        self._nodes_of[holding.key] = tuple(names)
        for name in new:
            if name not in self.lost:
                self._note_lost([name], self.domain(name), self._fold.at_ms)

    def _drop(self, key: AttemptKey, kept: Collection[str] = ()) -> None:
        for name in self._nodes_of.pop(key, ()):
            if name in kept:
                continue
            attempts = self._attempts_on[name]
            del attempts[key]
            if not attempts:
                del self._attempts_on[name]
                self.lost.drop(name)

    def _note_lost(self, names: Iterable[str], domain: str, at_ms: int, *, moving: Collection[str] = ()) -> None:
        """Note which of these nodes are gone, not ready, or to be left, as far as they have attempts."""
        for name in names:
            if name in self._attempts_on:
                is_unready, is_evicted = not self.is_ready(name), self._is_evicted(name)
                self.lost.note(name, domain, is_unready=is_unready, is_evicted=is_evicted, at_ms=at_ms)
                if name in moving and not self.domain(name):
                    self.lost.note_move(name)

    def is_ready(self, name: str) -> bool:
        """Whether a node is there and ready."""
        table = self._table
        row = table.row_of.get(name)
        return row is not None and bool(table.present[row]) and table.classes[int(table.node_class[row])].ready

    def _is_evicted(self, name: str) -> bool:
        condition = self.condition(name)
        return condition is not None and condition.level is NodeHealth.EVICT

    def has_healthy_nodes(self, domain: str) -> bool:
        """Whether a domain has a node that is ready, and that pods are not to leave."""
        names = (self._table.names[row] for row in self._table.rows_of_domain(domain))
        return any(self.is_ready(name) and not self._is_evicted(name) for name in names)


def nodes_of(holding: Holding) -> list[str]:
    """Nodes of an attempt by rank, and then those that are reserved for its ranks."""
    return [*holding.placement.names(), *(share.node for share in holding.reserved().values())]


def _faults(condition: NodeCondition | None) -> tuple[int, int, int]:
    """What of a condition may make pods faulty; the level counts where it may."""
    if condition is None:
        return _NO_FAULTS
    is_unhealthy = condition.level in {NodeHealth.EVICT, NodeHealth.SUB_HEALTHY}
    return condition.unhealthy, condition.sub_healthy, int(condition.level) if is_unhealthy else 0
