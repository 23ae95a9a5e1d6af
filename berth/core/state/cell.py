"""State of a cell: the folded facts and the folded ledger, and the columns that follow from both.

The columns do not depend on the order in which facts and records were applied to one another, only on how far each
went: a scorer that took them in another order than the dispatcher has the same columns at the same sequences.

Longer than 400 lines because this is where facts and ledger meet, and each kind of fact has its step.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from berth.core.chips.soft_share_table import ShareBook
from berth.core.cluster.node_facts import check_health, check_nodes
from berth.core.cluster.node_packing import SWITCHES
from berth.core.cluster.node_table import NodeTable
from berth.core.state.leaf_occupancy import leaf_job
from berth.core.state.ledger import Folded, GangRecord, Holding, LedgerFold, PodShare, WaitingDump, dump_of, owned_by
from berth.core.state.level_index import LevelMap
from berth.core.state.superpod_index import BlockGround, ColocationIndex, SuperpodMap
from berth.core.switches.occupancy.leaf_states import LeafBook
from berth.core.switches.occupancy.leaf_table import LeafTable, check_topology, leaf_table
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.envelope import DecodeError, Envelope, body_of, open_envelope
from berth.schemas.facts import (
    HealthSeen,
    JobSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodPhase,
    PodsSeen,
    TimerSeen,
    TopologySeen,
)
from berth.schemas.ledger import Round, Settings
from berth.schemas.placement import Share
from berth.schemas.status import KeptFact, SnapshotBody
from berth.schemas.subjects import token
from berth.schemas.versions import encode_record

_INDEX_BYTES: Final = 4
_MASK_BYTES: Final = 8
_FOLDED: Final = "folded"
_VOID: Final = "void"
_GONE: Final = "gone"
_ENDED: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})
JobKey = tuple[str, str]
"""(namespace, name)"""


def shard_of(domain: str, shards: int) -> int:
    """Shard that owns a domain, 0..shards-1; the same on every machine."""
    return zlib.crc32(domain.encode()) % shards


class State:
    """Facts and ledger of a cell at (``facts_seq``, ``fold.head``).

    Args:
        owns: Which domains' nodes to keep, and nothing of jobs: a shard. All of everything when None.
        keeps: Whether to keep the latest message of each subject, for snapshots.
    """

    def __init__(self, *, owns: Callable[[str], bool] | None = None, keeps: bool = False) -> None:
        self.table = NodeTable()
        self.shares = ShareBook(self.table)
        self.leaves = LeafTable()
        self.leaf_book = LeafBook(self.leaves)
        self.blocks = BlockGround(
            SuperpodMap(self.table),
            LevelMap(self.table),
            ColocationIndex(self._nodes_of_service, self._nodes_of_labels),
        )
        self.fold = LedgerFold()
        self.jobs: dict[JobKey, JobSeen] = {}
        self.name_of: dict[str, JobKey] = {}
        """Who has a uid: jobs that were accepted and have not given up their names."""
        self.pods: dict[JobKey, PodsSeen] = {}
        self.outcomes: dict[JobKey, OutcomeSeen] = {}
        self.topologies: dict[str, TopologySeen] = {}
        self.facts_seq = 0
        self.nodes_seq = 0
        """Last fact that scores depend on; scorers need no later one."""
        self.intake_seq = 0
        """Highest INTAKE sequence that has a verdict."""
        self.time_ms = 0
        self.waiting: WaitingDump | None = None
        """What the snapshot from which it started says of who waits."""
        self.unknown: Counter[str] = Counter()
        self.changed: dict[JobKey, None] = {}
        """Jobs whose fact changed since it was last cleared."""
        self.moved: dict[JobKey, None] = {}
        """Jobs whose pods or outcome changed since it was last cleared."""
        self.touched: dict[str, None] = {}
        """Gangs (uid) whose life may have to go on, until a record says so."""
        self._owns = owns
        self.foreign: dict[str, JobKey] = {}
        """Pods of other schedulers, by the uid of their gang."""
        self.short: dict[str, None] = {}
        """Gangs (uid) of other schedulers of which some chips belong to somebody else."""
        self._latest, self._subject, self._sequence = False, "", 0  # of the fact that is being applied
        self._subjects_of: dict[JobKey, dict[str, None]] = {}
        # names under which facts show no pod that lives, and those facts' sequences, ascending
        self._podless: dict[JobKey, int] = {}
        self._kept: dict[str, tuple[int, bytes]] | None = {} if keeps else None
        self._owned: dict[tuple[str, int], list[PodShare]] = {}
        self._attempts_of: dict[JobKey, dict[tuple[str, int], None]] = {}  # holdings by name
        self._releasing: dict[tuple[str, int], dict[int, bool]] = {}
        self._apply: dict[str, Callable[[Envelope], str]] = {
            NodesSeen.KIND: self._nodes,
            HealthSeen.KIND: self._health,
            TopologySeen.KIND: self._topology,
            PodsSeen.KIND: self._pods,
            JobSeen.KIND: self._job,
            OutcomeSeen.KIND: self._outcome,
            TimerSeen.KIND: self._timer,
        }

    def apply_fact(self, subject: str, sequence: int, data: bytes, *, latest: bool = False) -> str:
        """Fold a fact.

        Args:
            subject: Subject on which it was stored; a fact on the subject of something else is never applied.
            sequence: Its sequence, above ``facts_seq``.
            data: The message.
            latest: It comes from a snapshot or from LATEST, where messages between are missing.

        Returns:
            Empty, or why the message can never be applied; then nothing of it was.
        """
        self.facts_seq = max(self.facts_seq, sequence)
        try:
            envelope = open_envelope(data)
            self._subject = subject
            if self._owns is not None and envelope.kind not in _SCORED_KINDS:
                return ""  # a shard has no use for it
            step = self._apply.get(envelope.kind)
            if step is None and envelope.kind == MembersSeen.KIND:
                return ""  # the binder's business: which pods there are decides nothing
            if step is None:
                self.unknown[envelope.kind] += 1
                return ""
            self._latest = latest
            self._sequence = sequence
            effect = step(envelope)
        except DecodeError as error:
            return error.reason
        if envelope.kind in _SCORED_KINDS:
            self.nodes_seq = max(self.nodes_seq, sequence)
        if self._kept is not None and effect != _VOID and envelope.kind != TimerSeen.KIND:
            if effect == _GONE:
                self._kept.pop(subject, None)
            else:
                self._kept[subject] = (sequence, data)
        return ""

    def apply_record(self, sequence: int, data: bytes) -> Folded:
        """Fold a record of the ledger.

        Raises:
            HistoryError: Records are missing before it.
            NewerVersionError: Only a newer release reads it.
            DecodeError: It does not decode.
            InvariantError: It breaks a rule of the ledger.
        """
        before = self.fold.settings
        return self._follow(self.fold.apply(sequence, open_envelope(data)), before)

    def apply_round(self, sequence: int, record: Round) -> Folded:
        """As :meth:`apply_record`, for a round that is decoded already.

        Raises:
            HistoryError: Records are missing before it.
            InvariantError: It breaks a rule of the ledger.
        """
        return self._follow(self.fold.apply_round(sequence, record), self.fold.settings)

    def _follow(self, folded: Folded, before: Settings) -> Folded:
        """Bring the columns in line with a record that was folded; ``before`` are the settings before it."""
        if folded.epoch:
            self._begin(before)
        if self._owns is not None:
            self._forget_idle(folded.gangs)
        for holding in folded.given_back:
            self._give_back(holding)
        for holding, ranks in folded.freed:
            self._free(holding, ranks)
        for holding in folded.taken:  # last: what was adopted anew was given back by the same record
            self._take(holding)
        if self._owns is None:
            self._touch(folded.gangs)
            if folded.given_back or folded.freed:
                self.touched.update(self.short)
            self._forget_podless()
        return folded

    def _begin(self, before: Settings) -> None:
        """Bring in line with the settings of an epoch what does not follow from facts and holdings alone."""
        settings = self.fold.settings
        is_new = settings.corrected and not before.corrected
        if is_new or settings.reference_parity != self.leaf_book.parity:
            self._count_leaves()
        self.table.corrected = settings.corrected
        if is_new:
            self.table.forget_gone()
        if is_new and self._owns is None:
            for key in sorted(self._releasing):
                if self.pods_seen(self.fold.holdings[key]) is None:
                    self._unmark(key)
            self.touched.update(dict.fromkeys(self.fold.gangs))

    def _forget_podless(self) -> None:
        """Forget facts without pods under names that no job has: those of other schedulers' pods, or that came late.

        No tombstone of a job ever does. Records must know the fact: an earlier one may still adopt what is gone by now.
        """
        over: list[JobKey] = []
        for key, sequence in self._podless.items():
            if sequence > self.fold.facts_seq:
                break
            if (self.pods[key].uid, self.pods[key].attempt) not in self.fold.holdings:
                over.append(key)
        for key in over:
            del self._podless[key]
            if key not in self.jobs:
                self._forget_pods(key)

    def _forget_pods(self, key: JobKey) -> None:
        self.pods.pop(key, None)
        self.outcomes.pop(key, None)
        self._podless.pop(key, None)
        for subject in self._subjects_of.pop(key, {}):
            if self._kept is not None:
                self._kept.pop(subject, None)

    def _touch(self, gangs: Iterable[GangRecord]) -> None:
        """Note gangs of a record for which facts that came before it may ask for something."""
        for gang in gangs:
            key = (gang.namespace, gang.name)
            job = self.jobs.get(key)
            if (
                key in self.pods
                or key in self.outcomes
                or job is None
                or job.state != "accepted"
                or job.uid != gang.uid
            ):
                self.touched[gang.uid] = None

    def _forget_idle(self, gangs: Iterable[GangRecord]) -> None:
        """Forget gangs that hold nothing: a shard sees no facts of jobs, so nothing else would ever end them."""
        for gang in gangs:
            if gang.phase not in {"placed", "ending"}:
                self.fold.gangs.pop(gang.uid, None)

    def owned(self, key: tuple[str, int]) -> list[PodShare]:
        """What each rank of a held attempt owns."""
        return self._owned.get(key, [])

    def _nodes_of_service(self, service: str) -> list[str]:
        """Nodes of the jobs of an inference service."""
        parts = ((key, holding.placement.block) for key, holding in self.fold.holdings.items())
        return self._nodes_of(key for key, part in parts if part is not None and part.service == service)

    def _nodes_of_labels(self, labels: Mapping[str, str]) -> list[str]:
        """Nodes of the jobs that carry all of some labels."""
        held = self.fold.holdings.items()
        jobs = ((key, self.jobs.get((holding.namespace, holding.name))) for key, holding in held)
        return self._nodes_of(
            key for key, job in jobs if job and job.request and labels.items() <= job.request.labels.items()
        )

    def _nodes_of(self, keys: Iterable[tuple[str, int]]) -> list[str]:
        """Nodes on which attempts own chips, by name."""
        return sorted({pod.node for key in keys for pod in self._owned.get(key, ()) if pod.mask})

    def held(self, node: str) -> int:
        """Mask of a node's chips that have an owner."""
        row = self.table.row_of.get(node)
        return 0 if row is None else int(self.table.used[row]) | int(self.table.releasing[row])

    def lift(self, holding: Holding) -> None:
        """Take a holding out as if it had been given back, to see what would be; :meth:`lay` puts it in again."""
        del self.fold.holdings[holding.key]
        self._give_back(holding)

    def lay(self, holding: Holding) -> None:
        """Put a holding in as if a record had given it, to see what would be; :meth:`lift` takes it out again."""
        self.fold.holdings[holding.key] = holding
        self._take(holding)

    def pods_seen(self, holding: Holding) -> PodsSeen | None:
        """Pods of exactly this attempt, as the cluster shows them."""
        seen = self.pods.get((holding.namespace, holding.name))
        return seen if seen is not None and (seen.uid, seen.attempt) == holding.key else None

    def outcome_of(self, holding: Holding) -> OutcomeSeen | None:
        """The binder's outcome for exactly this attempt."""
        seen = self.outcomes.get((holding.namespace, holding.name))
        return seen if seen is not None and (seen.uid, seen.attempt) == holding.key else None

    def dump(self, waiting: WaitingDump | None = None) -> bytes:
        """Snapshot of the facts kept and of the ledger's fold, in a total order.

        Args:
            waiting: Who waits for decisions, where somebody decides.
        """
        dump = self.fold.dump()
        dump.intake_seq, dump.nodes_seq = self.intake_seq, self.nodes_seq
        dump.waiting = waiting
        kept = self._kept or {}
        body = SnapshotBody(
            ledger_seq=self.fold.head,
            facts_seq=self.facts_seq,
            facts=[KeptFact(subject, kept[subject][0], kept[subject][1]) for subject in sorted(kept)],
            ledger=msgspec.msgpack.encode(dump),
        )
        return encode_record(body, self.fold.settings)

    def load(self, body: SnapshotBody) -> None:
        """Become what a snapshot holds; only for a state that has applied nothing yet.

        Raises:
            DecodeError: The folded ledger does not decode; then nothing was loaded.
            InvariantError: What it holds breaks a rule of the ledger.
        """
        dump = dump_of(body.ledger)
        for fact in sorted(body.facts, key=lambda kept: kept.sequence):
            self.apply_fact(fact.subject, fact.sequence, fact.data, latest=True)
        self.fold.load(dump)
        self.table.corrected = self.fold.settings.corrected
        self._count_leaves()
        for key in sorted(self.fold.holdings):
            self._take(self.fold.holdings[key])
        self.intake_seq = max(self.intake_seq, dump.intake_seq)
        self.facts_seq = body.facts_seq
        self.nodes_seq = dump.nodes_seq
        self.waiting = dump.waiting
        self.time_ms = dump.waiting.time_ms if dump.waiting is not None else 0
        if self._owns is None:
            self.touched.update(dict.fromkeys(self.fold.gangs))
            self.touched.update(dict.fromkeys(self.foreign))
        else:
            self._forget_idle(list(self.fold.gangs.values()))

    def forget_unnamed(self) -> None:
        """Drop gangs whose name is another's or nobody's; for a start from LATEST, where the facts that said so are missing."""
        for gang in list(self.fold.gangs.values()):
            job = self.jobs.get((gang.namespace, gang.name))
            if job is None or job.uid != gang.uid:
                self.fold.forget(gang.uid, self.facts_seq)

    def _nodes(self, envelope: Envelope) -> str:
        fact = body_of(envelope, NodesSeen)
        check_nodes(fact)
        self._check_subject("node", fact.domain)
        if self._owns is None or self._owns(fact.domain):
            self.table.apply_nodes(fact)
            self.shares.learn(self.table.rows_of_domain(fact.domain))
        return _FOLDED if fact.names else _GONE

    def _health(self, envelope: Envelope) -> str:
        fact = body_of(envelope, HealthSeen)
        check_health(fact)
        self._check_subject("health", fact.domain)
        if self._owns is None or self._owns(fact.domain):
            self.table.apply_health(fact)
        return _FOLDED

    def _topology(self, envelope: Envelope) -> str:
        fact = body_of(envelope, TopologySeen)
        self._check_subject("topology", fact.kind)
        if fact.kind == SWITCHES:
            check_topology(fact)
        known = self.topologies.get(fact.kind)
        self.topologies[fact.kind] = fact
        told = (fact.leaves, fact.level, fact.places)
        if fact.kind == SWITCHES and (known is None or told != (known.leaves, known.level, known.places)):
            self.leaves = leaf_table(fact)
            self._count_leaves()
        return _FOLDED

    def _count_leaves(self) -> None:
        """Count all jobs anew: the leaves are others, or what counts."""
        self.leaf_book = LeafBook(self.leaves, parity=self.fold.settings.reference_parity)
        for key in sorted(self._owned):
            self._note_leaves(key)
        self.leaf_book.eased = True

    def _note_leaves(self, key: tuple[str, int]) -> None:
        """Note on which leaves an attempt is."""
        holding = self.fold.holdings.get(key)
        if holding is not None and len(self.leaves):
            parity = self.leaf_book.parity
            job = leaf_job(holding, self._owned[key], parity=parity, seen=self.pods_seen(holding) if parity else None)
            self.leaf_book.put(key, job)
            if parity and self.fold.settings.corrected:
                self.table.stirred = True  # what pods do changes their leaves there, and no row

    def _pods(self, envelope: Envelope) -> str:
        fact = body_of(envelope, PodsSeen)
        rows = len(fact.phase)
        if (
            len(fact.rank) != _INDEX_BYTES * rows
            or len(fact.node_index) != _INDEX_BYTES * rows
            or len(fact.chips) != _MASK_BYTES * rows
            or len(fact.leaf_states) not in {0, rows}
        ):
            raise DecodeError(f"columns do not have {rows} rows each", kind=envelope.kind)
        if len(fact.blocks) not in {0, 2 * rows}:
            raise DecodeError(f"blocks: {len(fact.blocks)} bytes, expected {2 * rows} or none", kind=envelope.kind)
        if fact.foreign and unpack(fact.rank, _INDEX_BYTES) != list(range(rows)):
            raise DecodeError(
                f"rank: of pods of another scheduler, expected 0 to {rows - 1} in order", kind=envelope.kind
            )
        if fact.cpu_milli < 0 or fact.memory_mib < 0:
            raise DecodeError("cpu_milli, memory_mib: less than nothing", kind=envelope.kind)
        try:
            nodes = len(unpack_names(fact.nodes))
        except ValueError as error:
            raise DecodeError(f"nodes: {error}", kind=envelope.kind) from error
        worst = max(unpack(fact.node_index, 4), default=-1)
        if worst >= nodes:
            raise DecodeError(f"node_index: {worst} is outside its table of {nodes} names", kind=envelope.kind)
        self._check_subject("pod", fact.namespace, fact.gang)
        self.pods[fact.namespace, fact.gang] = fact
        self._look_again((fact.namespace, fact.gang))
        self._podless.pop((fact.namespace, fact.gang), None)
        if all(phase in _ENDED for phase in fact.phase):
            self._podless[fact.namespace, fact.gang] = self._sequence
            self.short.pop(fact.uid, None)
        self.moved[fact.namespace, fact.gang] = None
        self._subjects_of.setdefault((fact.namespace, fact.gang), {})[self._subject] = None
        self.touched[fact.uid] = None
        if fact.foreign and fact.phase:
            self.foreign[fact.uid] = (fact.namespace, fact.gang)
        else:
            self.foreign.pop(fact.uid, None)
        self._mark((fact.uid, fact.attempt), fact)
        if self.leaf_book.parity and (fact.uid, fact.attempt) in self._owned:
            self._note_leaves((fact.uid, fact.attempt))
        return _FOLDED

    def _job(self, envelope: Envelope) -> str:
        fact = body_of(envelope, JobSeen)
        self._check_subject("job", fact.namespace, fact.name)
        key = (fact.namespace, fact.name)
        known = self.jobs.get(key)
        if fact.state == "tombstone":
            return self._tombstone(fact, key, known)
        if not self._latest and (fact.intake_seq <= self.intake_seq or fact.after_seq > self.intake_seq):
            return _VOID
        if known is not None:
            self._give_up(known)
        self.jobs[key] = fact
        if fact.state != "rejected":
            self.name_of[fact.uid] = key
        if fact.uid in self.fold.gangs:
            self.touched[fact.uid] = None
        if known is not None and known.uid != fact.uid:
            self.touched[known.uid] = None
            self._forget(known.uid)
        self._look_again(key)
        self.intake_seq = max(self.intake_seq, fact.intake_seq)
        self.changed[key] = None
        return _FOLDED

    def _tombstone(self, fact: JobSeen, key: JobKey, known: JobSeen | None) -> str:
        # It speaks of a verdict that was a fact before it: that one counts, also where it is not kept any more.
        self.intake_seq = max(self.intake_seq, fact.intake_seq)
        if known is None or (known.uid != fact.uid and not (self._latest and fact.intake_seq >= known.intake_seq)):
            return _VOID
        del self.jobs[key]
        self._give_up(known)
        if known.uid != fact.uid:
            self._forget(known.uid)
        self._forget_pods(key)
        self._forget(fact.uid)
        self._look_again(key)
        self.changed[key] = None
        return _GONE

    def _check_subject(self, kind: str, *names: str) -> None:
        """See that a fact stands where it belongs: the latest message of a subject must be the latest of its thing.

        Raises:
            DecodeError: It stands on the subject of something else.
        """
        if not self._subject.endswith(f".fact.{kind}.{'.'.join(map(token, names))}"):
            raise DecodeError(f"speaks of {'/'.join(names)} on the subject {self._subject}", kind=f"fact.{kind}")

    def _give_up(self, job: JobSeen) -> None:
        if self.name_of.get(job.uid) == (job.namespace, job.name):
            del self.name_of[job.uid]

    def _forget(self, uid: str) -> None:
        if uid not in self.name_of:  # a request that was rejected may have borne the uid of a job that lives
            self.fold.forget(uid, self.facts_seq)

    def _outcome(self, envelope: Envelope) -> str:
        fact = body_of(envelope, OutcomeSeen)
        self._check_subject("outcome", fact.namespace, fact.name)
        self.outcomes[fact.namespace, fact.name] = fact
        self._look_again((fact.namespace, fact.name))
        self.moved[fact.namespace, fact.name] = None
        self._subjects_of.setdefault((fact.namespace, fact.name), {})[self._subject] = None
        self.touched[fact.uid] = None
        return _FOLDED

    def _look_again(self, name: JobKey) -> None:
        """Look again at all attempts that a name has: what facts say under it has changed, and a snapshot holds the latest alone."""
        if not self.fold.settings.corrected:
            return
        for key in self._attempts_of.get(name, ()):
            self.touched[key[0]] = None
            if self.pods_seen(self.fold.holdings[key]) is None:
                self._unmark(key)
                if self.leaf_book.parity:
                    self._note_leaves(key)

    def _timer(self, envelope: Envelope) -> str:
        self.time_ms = max(self.time_ms, body_of(envelope, TimerSeen).at_ms)
        return _FOLDED

    def _take(self, holding: Holding) -> None:
        pods = owned_by(holding)
        share = holding.placement.share
        for pod in pods:
            row = self.table.row(pod.node)
            if share is not None and pod.chips:
                self.shares.hold(row, pod.chips[0], share)
                self.table.hold(row, 0, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)
            else:
                self.table.hold(row, pod.mask, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)
        self._owned[holding.key] = pods
        self._attempts_of.setdefault((holding.namespace, holding.name), {})[holding.key] = None
        self._note_leaves(holding.key)
        seen = self.pods_seen(holding)
        if seen is not None:
            self._mark(holding.key, seen)

    def _give_back(self, holding: Holding) -> None:
        for pod in self._owned.pop(holding.key):
            self._let_go(pod, holding.placement.share)
        self._releasing.pop(holding.key, None)
        attempts = self._attempts_of[holding.namespace, holding.name]
        del attempts[holding.key]
        if not attempts:
            del self._attempts_of[holding.namespace, holding.name]
        self.leaf_book.drop(holding.key)

    def _free(self, holding: Holding, ranks: Iterable[int]) -> None:
        """Take back what some ranks of an attempt own."""
        pods = self._owned[holding.key]
        releasing = self._releasing.get(holding.key, {})
        for rank in ranks:
            self._let_go(pods[rank], holding.placement.share)
            pods[rank] = PodShare(pods[rank].node, 0, (), 0, 0)
            releasing.pop(rank, None)
        if not releasing:
            self._releasing.pop(holding.key, None)
        self._note_leaves(holding.key)

    def _let_go(self, pod: PodShare, share: Share | None) -> None:
        row = self.table.row(pod.node)
        if share is not None and pod.chips:
            self.shares.let_go(row, pod.chips[0], share)
            self.table.let_go(row, 0, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)
        else:
            self.table.let_go(row, pod.mask, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)

    def _unmark(self, key: tuple[str, int]) -> None:
        """Take chips for used again: nothing is known of the pods of an attempt any more."""
        pods = self._owned.get(key, [])
        for rank in sorted(self._releasing.pop(key, {})):
            self.table.mark_releasing(self.table.row(pods[rank].node), pods[rank].mask, releasing=False)

    def _mark(self, key: tuple[str, int], seen: PodsSeen) -> None:
        """Mark the chips of terminating pods as releasing."""
        if PodPhase.TERMINATING not in seen.phase and key not in self._releasing:
            return
        holding = self.fold.holdings.get(key)
        pods = self._owned.get(key)
        if pods is None or holding is None or holding.placement.share is not None:
            return
        before = self._releasing.get(key, {})
        terminating = {
            rank: True
            for rank, phase in zip(unpack(seen.rank, 4), seen.phase, strict=True)
            if phase == PodPhase.TERMINATING and rank < len(pods) and pods[rank].mask
        }
        for rank in sorted(before.keys() ^ terminating.keys()):
            pod = pods[rank]
            self.table.mark_releasing(self.table.row(pod.node), pod.mask, releasing=rank in terminating)
        if terminating:
            self._releasing[key] = terminating
        else:
            self._releasing.pop(key, None)


_SCORED_KINDS: Final = frozenset({NodesSeen.KIND, HealthSeen.KIND, TopologySeen.KIND})
"""Facts on which scores depend. Pods are none: they only move chips from used to releasing, and neither is free."""
