"""Bound pods as facts: gangs that Berth placed, rank by rank, and pods that others placed. Pure.

A pod belongs to a placement if its annotations say so and the bus knows the job. Any other pod with chips is *foreign*:
its chips are adopted. What a foreign pod without chips uses is taken off its node instead.

One subject tells of one attempt of a job. While pods of an attempt live, it keeps the subject; the next one follows.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.status import JobStatus
from berth.schemas.units import UnixMs
from berth.services.inventory.nodes.collection import Nodes, Use
from berth.services.inventory.pods.facts import PodEntry, alike, entries_of, pods_fact
from berth.services.inventory.pods.foreign import Foreign
from berth.services.inventory.pods.rows import ENDED, Claim, Row

JobKey: TypeAlias = tuple[str, str]
"""(namespace, name)"""
AttemptKey: TypeAlias = tuple[str, int]
"""(uid of the job request, attempt)"""
Ownership = Literal["own", "over", "unknown"]
_OVER: Final = frozenset({"succeeded", "failed", "cancelled"})


class _Job(NamedTuple):
    """Who has a job's name, and how many pods the job has; None when that is not known."""

    uid: str
    pods: int | None


class _CurrentAttempt(NamedTuple):
    """The attempt that a status speaks of."""

    uid: str
    attempt: int
    is_over: bool


class _Attempt:
    """Pods of one attempt: those that are there, by rank and uid, and the last word on ranks of which none is."""

    def __init__(self) -> None:
        self.pods: dict[int, dict[str, Row]] = {}
        self.gone: dict[int, PodEntry] = {}

    def rows(self) -> Iterator[Row]:
        return (row for pods in self.pods.values() for row in pods.values())

    @property
    def is_live(self) -> bool:
        return any(row.is_live for row in self.rows())


class _Gang:
    """Attempts of a job with pods, and what was said of it."""

    def __init__(self) -> None:
        self.attempts: dict[AttemptKey, _Attempt] = {}
        self.said: PodsSeen | None = None


class Pods:
    """All bound pods.

    Args:
        nodes: Nodes whose chips are looked up, and whose cpu and memory are used.
        unconfirmed_ms: How long a pod whose annotations name an unknown job waits for word of the job, before its chips
            are adopted.
    """

    def __init__(self, nodes: Nodes, *, unconfirmed_ms: int) -> None:
        self._nodes = nodes
        self._unconfirmed_ms = unconfirmed_ms
        self._rows: dict[str, Row] = {}
        self._uses: dict[str, Use] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._gangs: dict[JobKey, _Gang] = {}
        self._jobs: dict[JobKey, _Job] = {}
        self._current: dict[JobKey, _CurrentAttempt] = {}
        self._unconfirmed: dict[str, UnixMs] = {}
        self._dirty: dict[JobKey, None] = {}
        self._offered: dict[JobKey, None] = {}
        self._foreign = Foreign(self._entry_of)
        self.reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, uid: str) -> Row | None:
        """A bound pod by its uid."""
        return self._rows.get(uid)

    def on_node(self, node: str) -> list[Row]:
        """Pods that are bound to a node."""
        return [self._rows[uid] for uid in self._on_node.get(node, ())]

    def uids(self) -> list[str]:
        """All bound pods."""
        return list(self._rows)

    def restore(self, seen: PodsSeen) -> None:
        """Take up what an earlier run said of a gang or of a foreign pod, before any pod is put."""
        if seen.foreign:
            self._foreign.restore(seen)
            return
        gang = self._gangs.setdefault((seen.namespace, seen.gang), _Gang())
        gang.said = seen
        if not seen.phase:
            return
        attempt = gang.attempts.setdefault((seen.uid, seen.attempt), _Attempt())
        attempt.gone = {rank: told.once_gone for rank, told in entries_of(seen)}
        self._dirty[seen.namespace, seen.gang] = None

    def note_job(self, job: JobSeen) -> None:
        """Take the verdict on a job's name."""
        key = (job.namespace, job.name)
        before = self._jobs.get(key)
        if job.state in {"tombstone", "rejected"}:
            self._jobs.pop(key, None)
            if job.state == "tombstone":
                self._current.pop(key, None)
        elif job.request is not None:
            self._jobs[key] = _Job(job.uid, sum(task.replicas for task in job.request.tasks))
        elif before is None or before.uid != job.uid:
            self._jobs[key] = _Job(job.uid, None)
        if self._jobs.get(key) != before:
            self._judge_again(key)

    def note_status(self, status: JobStatus) -> None:
        """Take where a job stands."""
        key = (status.namespace, status.name)
        current = _CurrentAttempt(status.uid, status.attempt, status.phase in _OVER)
        if self._current.get(key) != current:
            self._current[key] = current
            self._judge_again(key)

    def put(self, row: Row, now_ms: UnixMs) -> None:
        """Take a bound pod as it is now."""
        before = self._rows.get(row.uid)
        if before == row:
            return
        if before is not None and before.claim != row.claim:
            self.remove(row.uid)
            before = None
        self._rows[row.uid] = row
        if before is None:
            self._on_node.setdefault(row.node, {})[row.uid] = None
        if row.claim is not None:
            gang = self._gangs.setdefault((row.namespace, row.claim.job), _Gang())
            attempt = gang.attempts.setdefault((row.claim.uid, row.claim.attempt), _Attempt())
            attempt.pods.setdefault(row.claim.rank, {})[row.uid] = row
            self._dirty[row.namespace, row.claim.job] = None
            if self._ownership(row.namespace, row.claim) == "unknown":
                self._unconfirmed.setdefault(row.uid, now_ms)
        self._account(row)

    def remove(self, uid: str) -> None:
        """Forget a pod that is gone."""
        row = self._rows.pop(uid, None)
        if row is None:
            return
        on_node = self._on_node[row.node]
        del on_node[uid]
        if not on_node:
            del self._on_node[row.node]
        self._unconfirmed.pop(uid, None)
        self.reasons.pop(uid, None)
        self._nodes.use(self._uses.pop(uid, None), None)
        self._foreign.drop(uid)
        if row.claim is not None:
            self._leave(row, row.claim)

    def _leave(self, row: Row, claim: Claim) -> None:
        key = (row.namespace, claim.job)
        attempt = self._gangs[key].attempts[claim.uid, claim.attempt]
        of_rank = attempt.pods[claim.rank]
        del of_rank[row.uid]
        if not of_rank:
            del attempt.pods[claim.rank]
            phase = PodPhase.GONE if row.is_live else row.phase
            attempt.gone[claim.rank] = self._entry_of(row)._replace(phase=phase, taken=1)
        self._dirty[key] = None

    def held(self, node: str) -> int:
        """Mask of the chips of a node that its pods hold."""
        held = 0
        for uid in self._on_node.get(node, ()):
            row = self._rows[uid]
            if row.is_live:
                held |= self._good_chips(row)
        return held

    def touch_nodes(self, names: Iterable[str]) -> None:
        """Look again at the pods on nodes whose chips have changed."""
        for name in names:
            for uid in self._on_node.get(name, ()):
                row = self._rows[uid]
                if row.claim is not None:
                    self._dirty[row.namespace, row.claim.job] = None
                self._account(row)

    def wake(self, now_ms: UnixMs) -> None:
        """Adopt the chips of pods that have waited long enough for word of their job."""
        for uid, since_ms in list(self._unconfirmed.items()):
            if since_ms + self._unconfirmed_ms <= now_ms:
                del self._unconfirmed[uid]
                self._account(self._rows[uid])

    def next_due_ms(self) -> UnixMs | None:
        """When :meth:`wake` has something to do; None for never."""
        return min(self._unconfirmed.values(), default=0) + self._unconfirmed_ms if self._unconfirmed else None

    def due(self, now_ms: UnixMs) -> list[PodsSeen]:
        """Facts that differ from what was said, in a total order."""
        facts: list[PodsSeen] = []
        self._dirty.update(self._offered)  # what was due before and could not be said
        self._offered.clear()
        for key in sorted(self._dirty):
            del self._dirty[key]
            fact = self._fact(key, now_ms)
            if fact is None or _is_same(self._gangs[key].said, fact):
                self._forget_idle(key)
            else:
                self._offered[key] = None
                facts.append(fact)
        return [*facts, *self._foreign.due(now_ms)]

    def say(self, fact: PodsSeen) -> None:
        """Note that a fact was said."""
        if fact.foreign:
            self._foreign.say(fact)
            return
        key = (fact.namespace, fact.gang)
        gang = self._gangs[key]
        gang.said = fact
        del self._offered[key]
        if self._chosen(key, gang) != (fact.uid, fact.attempt):
            self._dirty[key] = None
        elif key not in self._dirty:
            self._forget_idle(key)

    def _fact(self, key: JobKey, now_ms: UnixMs) -> PodsSeen | None:
        """What is to be said of a job's pods; None for nothing."""
        gang = self._gangs[key]
        chosen = self._chosen(key, gang)
        said = gang.said
        if said is not None and chosen != (said.uid, said.attempt) and any(phase not in ENDED for phase in said.phase):
            chosen = (said.uid, said.attempt)  # it must be heard that these have ended, before others take the subject
        if chosen is None or chosen not in gang.attempts:
            return None
        return self._told(key, chosen, gang.attempts[chosen], now_ms)

    def _chosen(self, key: JobKey, gang: _Gang) -> AttemptKey | None:
        """The attempt that the subject tells of: the one last said while it lives, else the newest with pods.

        Pods that came and went since the last word count: their chips are to be given back.
        """
        said = None if gang.said is None else (gang.said.uid, gang.said.attempt)
        if said in gang.attempts and gang.attempts[said].is_live and self._ownership_of(key, said) == "own":
            return said
        job = self._jobs.get(key)

        def age(found: AttemptKey) -> tuple[bool, str, int, str]:
            newest = max((row.created for row in gang.attempts[found].rows()), default="")
            return (job is not None and job.uid == found[0], newest, found[1], found[0])

        owned = [
            found
            for found, attempt in gang.attempts.items()
            if (attempt.pods or attempt.gone or found == said) and self._ownership_of(key, found) == "own"
        ]
        return max(owned, key=age) if owned else said

    def _told(self, key: JobKey, chosen: AttemptKey, attempt: _Attempt, now_ms: UnixMs) -> PodsSeen:
        rows = {rank: max(pods.values(), key=_weight) for rank, pods in attempt.pods.items()}
        told = attempt.gone | {rank: self._entry_of(row) for rank, row in rows.items()}
        job = self._jobs.get(key)
        size = job.pods if job is not None and job.uid == chosen[0] else None
        if not rows and (size is None or len(told) < size) and any(one.phase == PodPhase.GONE for one in told.values()):
            told = {}  # none is left, and none of the missing ranks will come
        gang = self._gangs[key]
        said = gang.said if gang.said is not None and (gang.said.uid, gang.said.attempt) == chosen else None
        return pods_fact(key, chosen, told, alike(rows, said), at_ms=now_ms)

    def _entry_of(self, row: Row) -> PodEntry:
        return PodEntry(row.node, row.phase, self._good_chips(row), self._has_taken(row), row.leaf_state, row.block)

    def _has_taken(self, row: Row) -> int:
        """1 unless the device plug-in has yet to give a pod its chips.

        Source: docs/reference/kubernetes.md, "Life of a pod".
        """
        return int(row.taken or (row.chips != 0 and self._good_chips(row) == self._nodes.mask(row.node)))

    def _good_chips(self, row: Row) -> int:
        """Physical chips of a pod that its node has."""
        return self._nodes.named(row.node, row.chips, physical=row.physical).chips

    def _ownership_of(self, key: JobKey, attempt: AttemptKey) -> Ownership:
        current = self._current.get(key)
        if current is not None and current.uid == attempt[0]:
            is_over = attempt[1] < current.attempt or (attempt[1] == current.attempt and current.is_over)
            return "over" if is_over else "own"
        job = self._jobs.get(key)
        if job is None:
            return "unknown"
        gang = self._gangs.get(key)
        said = gang.said if gang is not None else None
        if job.uid == attempt[0] or (said is not None and (said.uid, said.attempt) == attempt):
            return "own"
        return "unknown"

    def _ownership(self, namespace: str, claim: Claim) -> Ownership:
        return self._ownership_of((namespace, claim.job), (claim.uid, claim.attempt))

    def _judge_again(self, key: JobKey) -> None:
        gang = self._gangs.get(key)
        if gang is None:
            return
        self._dirty[key] = None
        for row in [row for attempt in gang.attempts.values() for row in attempt.rows()]:
            if row.claim is not None and self._ownership(row.namespace, row.claim) != "unknown":
                self._unconfirmed.pop(row.uid, None)
            self._account(row)

    def _account(self, row: Row) -> None:
        """Note who is to answer for what a pod has: the ledger, an adoption, or the node."""
        ownership = "unknown" if row.claim is None else self._ownership(row.namespace, row.claim)
        is_own = ownership == "own" or (row.claim is not None and row.uid in self._unconfirmed)
        is_adopted = row.is_live and not is_own and self._good_chips(row) != 0
        use = Use(row.node, row.asked, row.cpu_milli, row.memory_mib, counted=is_own or is_adopted)
        after = use if row.is_live else None
        self._nodes.use(self._uses.get(row.uid), after)
        if after is None:
            self._uses.pop(row.uid, None)
        else:
            self._uses[row.uid] = after
        if is_adopted:
            self._foreign.put(row)
        else:
            self._foreign.drop(row.uid)
        reason = self._reason(row)
        if reason:
            self.reasons[row.uid] = reason
        else:
            self.reasons.pop(row.uid, None)

    def _reason(self, row: Row) -> str:
        """What is wrong with a pod's annotations, with its name; empty when nothing is."""
        wrong = [row.reason] if row.reason else []
        extra = self._nodes.named(row.node, row.chips, physical=row.physical).unknown
        if extra and row.is_live:
            ids = ", ".join(str(chip) for chip in range(extra.bit_length()) if extra >> chip & 1)
            wrong.append(f"its chips {ids} are none of node {row.node}: expected chips of the node that it is bound to")
        return f"pod {row.namespace}/{row.name}: {'; '.join(wrong)}" if wrong else ""

    def _forget_idle(self, key: JobKey) -> None:
        """Drop attempts of which nothing is left to say."""
        gang = self._gangs[key]
        said = gang.said
        for found, attempt in list(gang.attempts.items()):
            is_published = said is not None and (said.uid, said.attempt) == found
            if not attempt.pods and (not is_published or said is None or all(phase in ENDED for phase in said.phase)):
                del gang.attempts[found]
        if not gang.attempts:
            del self._gangs[key]


def _weight(row: Row) -> tuple[bool, str, str]:
    """Of two pods with one rank the living one counts, then the younger."""
    return (row.is_live, row.created, row.uid)


def _is_same(said: PodsSeen | None, fact: PodsSeen) -> bool:
    return said is not None and msgspec.structs.replace(said, at_ms=0) == msgspec.structs.replace(fact, at_ms=0)
