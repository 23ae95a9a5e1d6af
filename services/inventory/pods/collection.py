"""Bound pods as facts: gangs placed by Berth, by rank, and pods placed by others. Pure.

A pod belongs to a placement if its annotations name it and the bus knows the job. Any other pod with chips is
*foreign*: its chips are adopted. The resources of a foreign pod without chips are subtracted from its node instead.
One subject reports one attempt of a job. While pods of an attempt live, it keeps the subject; then the next one
follows.

Longer than 400 lines because what is known of a pod has several sources, and all of them end in one fact.
"""

from collections.abc import Collection, Iterable
from typing import Final, Literal, TypeAlias

from berth.core.chips.picking import union_of
from berth.formats.kubernetes.bound_pods import RankIdentity
from berth.schemas.facts import JobSeen, OutcomeSeen, PodPhase, PodsSeen, is_repeat
from berth.schemas.status import JobStatus
from berth.schemas.units import UnixMs
from berth.services.inventory.nodes.collection import Naming, Nodes
from berth.services.inventory.nodes.uses import Use
from berth.services.inventory.pace import LONGEST, apart_ms
from berth.services.inventory.pod_rows import ENDED, PodRow
from berth.services.inventory.pods.attempts import Attempt, AttemptKey, JobPods, LatestAttempt, NameHolder, heaviest
from berth.services.inventory.pods.budgets import Budgets
from berth.services.inventory.pods.checkpoints import Checkpoints
from berth.services.inventory.pods.chips import PodChips
from berth.services.inventory.pods.chips_twice import ChipsTwice
from berth.services.inventory.pods.facts import RankState, common_fields, pods_fact, rank_states
from berth.services.inventory.pods.foreign import Foreign, QueueOf
from berth.services.inventory.usage.collection import Usage

JobKey: TypeAlias = tuple[str, str]
"""(namespace, name)"""
Ownership = Literal["own", "over", "unknown"]
_OVER: Final = frozenset({"succeeded", "failed", "cancelled"})


class Pods:
    """All bound pods.

    Args:
        nodes: Nodes; they resolve chip ids, and the CPU and memory of pods are subtracted from them.
        usage: Gets all pods, for the facts that constraints depend on.
        queues: Queue of a pod that another scheduler placed.
        await_job_ms: Time for which a pod whose annotations name an unknown job waits for the job, before its chips are
            adopted.
        naming_ms: Time in which the device plug-in names the chips of a pod that was bound.
        settle_ms: Least time between two facts about a large gang.
    """

    def __init__(
        self, nodes: Nodes, usage: Usage, queues: QueueOf, *, await_job_ms: int, naming_ms: int = 0, settle_ms: int = 0
    ) -> None:
        self._nodes, self._usage = nodes, usage
        self._await_job_ms, self._settle_ms = await_job_ms, settle_ms
        self._chips = PodChips(nodes, naming_ms=naming_ms)
        self._rows: dict[str, PodRow] = {}
        self._uses: dict[str, Use] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._gangs: dict[JobKey, JobPods] = {}
        self._jobs: dict[JobKey, NameHolder] = {}
        self._latest_attempts: dict[JobKey, LatestAttempt] = {}
        self.awaiting_job: dict[str, UnixMs] = {}
        """Since when pods (uid) wait for the verdict on their job; their chips are not in the facts."""
        self._dirty: dict[JobKey, None] = {}
        self._offered: dict[JobKey, None] = {}
        self._states: dict[str, tuple[PodRow, Naming, RankState]] = {}
        """State of pods by uid, with what it was made of: a fact about a large gang has few new ones."""
        self._foreign = Foreign(self._rank_state, queues)
        self.checkpoints, self.budgets, self.twice = Checkpoints(), Budgets(), ChipsTwice()
        self.reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_changed(self) -> bool:
        """Whether facts may be due, now or later."""
        return bool(self._dirty or self._offered or self._foreign.is_changed)

    def row(self, uid: str) -> PodRow | None:
        """Bound pod by uid."""
        return self._rows.get(uid)

    def on_node(self, node: str) -> list[PodRow]:
        """Pods that are bound to a node."""
        return [self._rows[uid] for uid in self._on_node.get(node, ())]

    def uids(self) -> list[str]:
        """Uids of all bound pods."""
        return list(self._rows)

    def restore(self, seen: PodsSeen) -> None:
        """Restore a published fact about a gang or a foreign pod. All calls come before :meth:`put`."""
        if seen.foreign:
            self._foreign.restore(seen)
            return
        gang = self._gangs.setdefault((seen.namespace, seen.gang), JobPods())
        gang.published = seen
        self.checkpoints.restore((seen.namespace, seen.gang), seen)
        if not seen.phase:
            return
        attempt = gang.attempts.setdefault((seen.uid, seen.attempt), Attempt())
        attempt.gone = {rank: by_rank.once_gone for rank, by_rank in rank_states(seen)}
        self._dirty[seen.namespace, seen.gang] = None

    def note_job(self, job: JobSeen) -> None:
        """Take the verdict on a job's name."""
        key = (job.namespace, job.name)
        before = self._jobs.get(key)
        if job.state in {"tombstone", "rejected"}:
            self._jobs.pop(key, None)
            if job.state == "tombstone":
                self._latest_attempts.pop(key, None)
        elif job.request is not None:
            sizes = tuple((task.replicas, task.cpu_milli, task.memory_mib) for task in job.request.tasks)
            self._jobs[key] = NameHolder(job.uid, sum(pods for pods, _, _ in sizes), sizes)
        elif before is None or before.uid != job.uid:
            self._jobs[key] = NameHolder(job.uid, None)
        if self._jobs.get(key) != before:
            self._reevaluate(key)

    def lacks(self, outcome: OutcomeSeen) -> bool:
        """Whether no pod was seen of a rank that an outcome says was bound, and the attempt is not over."""
        is_own = self._ownership((outcome.namespace, outcome.name), (outcome.uid, outcome.attempt)) == "own"
        return is_own and not self.knows(outcome, self._ranks_bound(outcome))

    def knows(self, outcome: OutcomeSeen, ranks: Collection[int]) -> bool:
        """Whether pods of all these ranks of the attempt of an outcome were seen."""
        gang = self._gangs.get((outcome.namespace, outcome.name))
        known = gang.attempts.get((outcome.uid, outcome.attempt)) if gang is not None else None
        return not ranks or (known is not None and all(known.knows(rank) for rank in ranks))

    def note_bound(self, outcome: OutcomeSeen) -> None:
        """Note that the binder bound pods of an attempt, after all pods were listed and those in the list were seen.

        The others are gone: they came and went before a fact about them was published.

        Args:
            outcome: What the binder said before the list.
        """
        key = (outcome.namespace, outcome.name)
        ranks = self._ranks_bound(outcome)
        if not ranks:
            return
        attempt = self._gangs.setdefault(key, JobPods()).attempts.setdefault((outcome.uid, outcome.attempt), Attempt())
        for rank in ranks:
            if not attempt.knows(rank):
                attempt.gone[rank] = RankState("", PodPhase.GONE, 0)
        self._dirty[key] = None

    def _ranks_bound(self, outcome: OutcomeSeen) -> Collection[int]:
        """Ranks that were bound by an outcome; none if it does not say that these were all."""
        job = self._jobs.get((outcome.namespace, outcome.name))
        is_whole = outcome.state == "bound" and not outcome.step and not outcome.failures
        is_whole = is_whole and job is not None and (job.uid, job.pods) == (outcome.uid, outcome.bound)
        return range(outcome.bound) if is_whole else ()

    def note_status(self, status: JobStatus) -> None:
        """Take the status of a job."""
        key = (status.namespace, status.name)
        latest = LatestAttempt(status.uid, status.attempt, status.phase in _OVER)
        if self._latest_attempts.get(key) != latest:
            self._latest_attempts[key] = latest
            self._reevaluate(key)

    def put(self, row: PodRow, now_ms: UnixMs) -> None:
        """Take the current state of a bound pod."""
        before = self._rows.get(row.uid)
        if before == row:
            return
        if before is not None and before.identity != row.identity:
            self.remove(row.uid)
            before = None
        self._rows[row.uid] = row
        if before is None:
            self._on_node.setdefault(row.node, {})[row.uid] = None
            self._chips.begin(row, now_ms)
        if row.identity is not None:
            key = (row.namespace, row.identity.job)
            gang = self._gangs.setdefault(key, JobPods())
            attempt = gang.attempts.setdefault((row.identity.uid, row.identity.attempt), Attempt())
            attempt.pods.setdefault(row.identity.rank, {})[row.uid] = row
            if self.checkpoints.see(key, before, row):
                self._dirty[key] = None
            if before is not None and before.chips != row.chips:
                gang.next_ms = 0  # other chips than it was given: these must not be given away
            # A pod that was adopted does not wait, not even in a later run: its chips would be free meanwhile.
            is_new = before is None and not self._foreign.is_published(row.uid)
            if is_new and self._ownership_of(row) == "unknown":
                self.awaiting_job[row.uid] = now_ms
            for other in attempt.others(row):
                self._account(other)
        self._account(row)

    def remove(self, uid: str) -> None:
        """Drop a pod that is gone."""
        row = self._rows.pop(uid, None)
        if row is None:
            return
        on_node = self._on_node[row.node]
        del on_node[uid]
        if not on_node:
            del self._on_node[row.node]
        self.awaiting_job.pop(uid, None)
        self._chips.settle(uid)
        self.reasons.pop(uid, None)
        self._nodes.use(self._uses.pop(uid, None), None)
        self._foreign.drop(uid)
        self._usage.drop(uid)
        if row.identity is not None:
            self._leave(row, row.identity)
        self._states.pop(uid, None)
        for other in self.twice.note(row.node, uid, 0):
            self._account(self._rows[other])

    def _leave(self, row: PodRow, identity: RankIdentity) -> None:
        key = (row.namespace, identity.job)
        attempt = self._gangs[key].attempts[identity.uid, identity.attempt]
        of_rank = attempt.pods[identity.rank]
        del of_rank[row.uid]
        if not of_rank:
            del attempt.pods[identity.rank]
            phase = PodPhase.GONE if row.is_live else row.phase
            attempt.gone[identity.rank] = self._rank_state(row).ended(phase)
        for other in attempt.others(row):
            self._account(other)
        self._dirty[key] = None

    def held(self, node: str) -> int:
        """Bitmap of the chips of a node that its pods hold."""
        return union_of(self._chips.of(row) for row in self.on_node(node) if row.is_live)

    def touch_nodes(self, names: Iterable[str]) -> None:
        """Update the pods on nodes whose chips changed."""
        for name in names:
            for uid in self._on_node.get(name, ()):
                row = self._rows[uid]
                if row.identity is not None:
                    self._dirty[row.namespace, row.identity.job] = None
                self._account(row)

    def wake(self, now_ms: UnixMs) -> None:
        """Adopt the chips of pods that have waited long enough for their job, and see who is new no longer."""
        for uid in self._chips.settled(now_ms):
            self._account(self._rows[uid])
        for uid, since_ms in list(self.awaiting_job.items()):
            if since_ms + self._await_job_ms <= now_ms:
                del self.awaiting_job[uid]
                self._account(self._rows[uid])

    def next_due_ms(self) -> UnixMs | None:
        """Time at which :meth:`wake` and :meth:`due` must be called even if nothing changes; None for never."""
        moments = [self._gangs[key].next_ms for key in self._dirty]
        others = (self._chips.next_due_ms(), self.checkpoints.next_due_ms())
        moments += [due_ms for due_ms in others if due_ms is not None]
        if self.awaiting_job:
            moments.append(min(self.awaiting_job.values()) + self._await_job_ms)
        return min(moments, default=None)

    def due(self, now_ms: UnixMs) -> list[PodsSeen]:
        """Facts that differ from the published ones, in a total order."""
        facts: list[PodsSeen] = []
        self._dirty.update(self._offered)  # facts that were due before and could not be published
        self._offered.clear()
        self._dirty.update(self.checkpoints.take_due(now_ms) | self.budgets.take_due(self._gangs))
        for key in sorted(self._dirty):
            if now_ms < self._gangs[key].next_ms <= now_ms + LONGEST * self._settle_ms:
                continue
            del self._dirty[key]
            fact = self._fact(key, now_ms)
            if fact is None or is_repeat(self._gangs[key].published, fact):
                self._forget_idle(key)
            else:
                self._offered[key] = None
                facts.append(fact)
        return [*facts, *self._foreign.due(now_ms)]

    def note_published(self, fact: PodsSeen) -> None:
        """Note that a fact was published."""
        if fact.foreign:
            self._foreign.note_published(fact)
            if (row := self._rows.get(fact.uid)) is not None:
                self._account(row)
            return
        key = (fact.namespace, fact.gang)
        gang = self._gangs[key]
        gang.published = fact
        job = self._jobs.get(key)
        pods = (job.pods if job is not None else None) or len(fact.phase)
        gang.next_ms = fact.at_ms + apart_ms(self._settle_ms, pods)
        del self._offered[key]
        if self._chosen(key, gang) != (fact.uid, fact.attempt):
            self._dirty[key] = None
        elif key not in self._dirty:
            self._forget_idle(key)

    def _fact(self, key: JobKey, now_ms: UnixMs) -> PodsSeen | None:
        """Fact to publish about a job's pods; None for none."""
        gang = self._gangs[key]
        chosen = self._chosen(key, gang)
        published = gang.published
        if (
            published is not None
            and chosen != (published.uid, published.attempt)
            and any(phase not in ENDED for phase in published.phase)
        ):
            chosen = (published.uid, published.attempt)  # the end of these is published before others take the subject
        if chosen is None or chosen not in gang.attempts:
            return None
        return self._attempt_fact(key, chosen, gang.attempts[chosen], now_ms)

    def _chosen(self, key: JobKey, gang: JobPods) -> AttemptKey | None:
        """Attempt that the subject reports: the published one while it lives, otherwise the newest with pods.

        Pods that came and went since the published fact count: their chips must be released.
        """
        published = None if gang.published is None else (gang.published.uid, gang.published.attempt)
        if published in gang.attempts and gang.attempts[published].is_live and self._ownership(key, published) == "own":
            return published
        owned = [
            found
            for found, attempt in gang.attempts.items()
            if (attempt.pods or attempt.gone or found == published) and self._ownership(key, found) == "own"
        ]
        return gang.newest(owned, self._jobs.get(key)) if owned else published

    def _attempt_fact(self, key: JobKey, chosen: AttemptKey, attempt: Attempt, now_ms: UnixMs) -> PodsSeen:
        rows = {rank: heaviest(pods) for rank, pods in attempt.pods.items()}
        by_rank = attempt.gone | {rank: self._rank_state(row) for rank, row in rows.items()}
        job = self._jobs.get(key)
        size = job.pods if job is not None and job.uid == chosen[0] else None
        is_short = size is None or len(by_rank) < size
        if not rows and is_short and any(one.phase == PodPhase.GONE for one in by_rank.values()):
            by_rank = {}  # no pod is left, and no missing rank will be filled
        published = self._gangs[key].published_of(chosen)
        saved_ms = self.checkpoints.of(key, chosen, rows, published, now_ms)
        broken = self.budgets.broken_by(key, rows.values())
        common = common_fields(rows, published)._replace(checkpoint_ms=saved_ms, budgets=broken)
        return pods_fact(key, chosen, by_rank, common, at_ms=now_ms)

    def _rank_state(self, row: PodRow) -> RankState:
        naming = self._nodes.naming(row.node)
        known = self._states.get(row.uid)
        if known is not None and known[0] is row and known[1] == naming:
            return known[2]
        state = RankState(
            row.node,
            row.phase,
            self._chips.of(row),
            self._chips.are_allocated(row),
            row.leaf_state,
            row.block,
            row.exit_code,
            row.marks,
            row.step,
            row.rejection,
        )
        self._states[row.uid] = (row, naming, state)
        return state

    def _ownership(self, key: JobKey, attempt: AttemptKey) -> Ownership:
        latest = self._latest_attempts.get(key)
        if latest is not None and latest.uid == attempt[0]:
            is_over = attempt[1] < latest.attempt or (attempt[1] == latest.attempt and latest.is_over)
            return "over" if is_over else "own"
        job = self._jobs.get(key)
        if job is None:
            return "unknown"
        gang = self._gangs.get(key)
        published = gang.published if gang is not None else None
        if job.uid == attempt[0] or (published is not None and (published.uid, published.attempt) == attempt):
            return "own"
        return "unknown"

    def _ownership_of(self, row: PodRow) -> Ownership:
        if row.identity is None:
            return "unknown"
        key, attempt = (row.namespace, row.identity.job), (row.identity.uid, row.identity.attempt)
        found = self._ownership(key, attempt)
        return "over" if found == "own" and self._gangs[key].attempts[attempt].is_copy(row) else found

    def _reevaluate(self, key: JobKey) -> None:
        gang = self._gangs.get(key)
        if gang is None:
            return
        self._dirty[key] = None
        for row in [row for attempt in gang.attempts.values() for row in attempt.rows()]:
            if self._ownership_of(row) != "unknown":
                self.awaiting_job.pop(row.uid, None)
            self._account(row)

    def _account(self, row: PodRow) -> None:
        """Note what accounts for a pod's resources: the ledger, an adoption, or the node."""
        alone = self._chips.of(row) if row.is_live and not self._chips.is_shared(row.node) else 0
        for other in self.twice.note(row.node, row.uid, alone):
            self._account(self._rows[other])
        ownership = self._ownership_of(row)
        is_own = ownership == "own" or (row.identity is not None and row.uid in self.awaiting_job)
        is_adopted = row.is_live and not is_own and self._chips.of(row) != 0
        # Nobody else counts a pod that waits for its job: after a restart it may have been there for long.
        is_counted = ownership == "own" or is_adopted
        job = self._jobs.get((row.namespace, row.identity.job)) if row.identity is not None else None
        beyond = job.beyond(row) if job is not None and ownership == "own" else (0, 0)
        unnamed = 0 if ownership == "own" else self._unnamed(row, is_adopted=is_adopted)
        if not unnamed:
            self._chips.settle(row.uid)
        new = self._chips.is_new(row.uid)
        use = Use(row.node, row.asked, row.cpu_milli, row.memory_mib, is_counted, *beyond, unnamed, new)
        after = use if row.is_live else None
        self._nodes.use(self._uses.get(row.uid), after)
        self._usage.put(row, is_own=is_own)
        if after is None:
            self._uses.pop(row.uid, None)
        else:
            self._uses[row.uid] = after
        if is_adopted:
            self._foreign.put(row, is_claimed=row.identity is not None and ownership == "unknown")
        else:
            self._foreign.drop(row.uid)
        self.reasons.pop(row.uid, None)
        if reason := self._chips.reason(row):
            self.reasons[row.uid] = reason

    def _unnamed(self, row: PodRow, *, is_adopted: bool) -> int:
        """Number of the chips of a pod that Berth did not place, without those of its fact.

        Chips that are named later count as named once that fact is published: until then nothing else keeps them.
        """
        named = self._chips.of(row) if is_adopted else 0
        named &= ~self.twice.before(row.node, row.uid, lambda uid: self._rows[uid].identity is not None)
        before = self._uses.get(row.uid)
        if before is not None and before.unnamed > self._chips.unnamed(row, named):
            named &= self._foreign.published_chips(row.uid)
        return self._chips.unnamed(row, named)

    def _forget_idle(self, key: JobKey) -> None:
        """Drop attempts whose facts are complete."""
        gang = self._gangs[key]
        published = gang.published
        for found, attempt in list(gang.attempts.items()):
            is_published = published is not None and (published.uid, published.attempt) == found
            if not attempt.pods and (
                not is_published or published is None or all(phase in ENDED for phase in published.phase)
            ):
                del gang.attempts[found]
        if not gang.attempts:
            del self._gangs[key]
            self.checkpoints.forget(key)
            self.budgets.forget(key)
