"""Escalation: which pods of a faulty job leave, how, and when more of them do.

The first rule that applies decides what leaves: only faulty pods (limit ``pod``), all pods (rank 0 is lost), a block
around each faulty pod (``pod-rescheduling``), only faulty pods (process recovery), else all pods. A block grows while a
new pod waits for a place: to the block of ranks, the logical SuperPoD or the group of level 1, and at last to the job.

Longer than 400 lines because the rules have one order, and each rests on the ones before it.

Source: docs/reference/faults.md, "Which pods are deleted".
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from berth.core.faults.model import JobDiagnosis, PodFault, PodFaultKind
from berth.core.faults.scopes import GangShape, Rung, block_of, ladder
from berth.core.parity import differs
from berth.core.requests.fault_rules import FaultRules
from berth.schemas.ledger import Settings
from berth.schemas.recovery import PREEMPTED, How, Recovery, Scope

_STILL_RUN: Final = frozenset({PodFaultKind.SUB_HEALTH, PodFaultKind.DRAIN})
"""Faults with which pods run on."""


_SINGLE_PLACES: Final = 16
"""Most ranks for which a turn seeks places one by one."""


class Progress(NamedTuple):
    """How far the recovery of an attempt has come.

    Attributes:
        last: The newest step; None without.
        leaving: Ranks whose pods are still to be deleted.
        unplaced: Ranks without a place, whether their pods are gone already or not.
        unbound: Ranks whose new pods do not run yet, apart from these.
        step_ms: Time of the newest step with which pods left.
        freed_ms: Time at which the last pod of a step was gone.
        waiting: Ranks whose new pods wait, and since when each of them does.
        paused_ms: Time at which process recovery was paused.
        retries_left: How often failed pods may still restart the job; -1: as often as its label says.
    """

    last: Recovery | None = None
    leaving: Collection[int] = ()
    unplaced: Collection[int] = ()
    unbound: Collection[int] = ()
    step_ms: int = 0
    freed_ms: int = 0
    waiting: Mapping[int, int] = MappingProxyType({})
    paused_ms: int = 0
    retries_left: int = -1

    @property
    def is_open(self) -> bool:
        """Whether a recovery is under way."""
        return bool(self.leaving or self.unplaced or self.unbound)


class Wanted(NamedTuple):
    """A step of a recovery that may be taken.

    Attributes:
        scope: How much of the job leaves.
        how: How.
        ranks: Ranks that leave, are marked or get a place, ascending.
        faulty: Those of them that are faulty, ascending.
        kind: Kind of the fault.
        cause: What is broken, as one sentence.
        since_ms: Time of the first step of the recovery.
        until_ms: Time after which pods are deleted at once; 0 unless they have a grace period.
        retries_left: As in :class:`~berth.schemas.recovery.Recovery`.
        sought: Ranks for which places are sought, ascending.
        needs_place: It is only taken if all of these have places.
        backup: Backup pod (uid) of its only rank, for which a place is sought; empty for none.
        saves: Agents in the containers save a checkpoint before the first pod is deleted.
        moves: What of the gang may move for the places; as ``scope`` if it is empty.
    """

    scope: Scope
    how: How
    ranks: tuple[int, ...]
    faulty: tuple[int, ...]
    kind: str
    cause: str
    since_ms: int
    until_ms: int = 0
    retries_left: int = -1
    sought: tuple[int, ...] = ()
    needs_place: bool = False
    backup: str = ""
    saves: bool = False
    moves: Scope | Literal[""] = ""


class Escalation(NamedTuple):
    """What may be done about the faults of an attempt now.

    Attributes:
        options: Steps; the first that has what it needs is taken.
        again_ms: Time at which to look again although nothing changed; 0 for never.
    """

    options: tuple[Wanted, ...] = ()
    again_ms: int = 0


NOTHING: Final = Escalation()


def escalate(
    diagnosis: JobDiagnosis,
    shape: GangShape,
    progress: Progress,
    settings: Settings,
    *,
    at_ms: int,
    seen_ms: int,
) -> Escalation:
    """What may be done about the faults of an attempt.

    Args:
        diagnosis: What is wrong with it, ranks that leave already left out.
        shape: Which of its pods belong together.
        progress: How far its recovery has come.
        settings: Settings of the epoch.
        at_ms: The moment.
        seen_ms: Time at which the newest of its faults was known.
    """
    rules = diagnosis.rules
    if not acts(rules):
        return NOTHING
    left = rules.retries if progress.retries_left < 0 else progress.retries_left
    faults = [one for one in diagnosis.faults if one.kind is not PodFaultKind.POD_FAILED or left > 0]
    step = _Step(rules, shape, progress, settings, at_ms, left)
    if rules.scheduling in {"external-grace", "external-force"}:
        return step.mark(faults)
    if faults:
        return step.for_faults(faults, seen_ms)
    return step.for_waiting() if progress.unplaced else NOTHING


def place_anew(ranks: Sequence[int], *, at_ms: int) -> tuple[Wanted, ...]:
    """Places for ranks (ascending) that gave theirs back, of a job that no fault concerns; nothing for none."""
    if not ranks:
        return ()
    found, cause = tuple(ranks), "its node does not take its pod any more"
    return (Wanted("pod", "place", found, (), "NodeChanged", cause, at_ms, sought=found, needs_place=True),)


def growth(ranks: Sequence[int], *, at_ms: int) -> tuple[Wanted, ...]:
    """Places for ranks (ascending) that were given up for others: for all of them, else for fewer of the first."""
    counts = dict.fromkeys((len(ranks), *range(min(len(ranks), _SINGLE_PLACES), 0, -1)))
    return tuple(
        Wanted("pod", "place", found, (), PREEMPTED, _gets_place(found), at_ms, sought=found, needs_place=True)
        for found in (tuple(ranks[:count]) for count in counts)
    )


def backup_for(rank: int, uid: str, *, at_ms: int, lost: str) -> Wanted:
    """A place for the backup pod of a rank, beside the pod that it has.

    Args:
        rank: The rank.
        uid: The backup pod.
        at_ms: The moment.
        lost: Why it cannot use the place that it has; empty for one without.
    """
    which = f"another place for a hot switch: {lost}" if lost else "a place for a hot switch"
    kind, cause = PodFaultKind.SUB_HEALTH.value, f"the backup pod of rank {rank} gets {which}"
    ranks = (rank,)
    return Wanted("pod", "backup", ranks, ranks, kind, cause, at_ms, sought=ranks, needs_place=True, backup=uid)


def acts(rules: FaultRules) -> bool:
    """Whether anything is done about the faults of a job, by its labels."""
    return not rules.has_owner and rules.scheduling not in {"off", "invalid"}


class _Step(NamedTuple):
    """The next step of one attempt."""

    rules: FaultRules
    shape: GangShape
    progress: Progress
    settings: Settings
    at_ms: int
    left: int
    """How often failed pods may restart the job."""

    def mark(self, faults: Sequence[PodFault]) -> Escalation:
        """Mark all faulty pods for another component, unless they are marked already."""
        last = self.progress.last
        ranks = tuple(one.rank for one in faults)
        if not ranks or (last is not None and last.how == "mark" and set(ranks) <= set(last.ranks)):
            return NOTHING
        wanted = Wanted("pod", "mark", ranks, ranks, faults[0].kind.value, _cause(faults), self.at_ms)
        return Escalation((wanted,))

    def for_faults(self, faults: Sequence[PodFault], seen_ms: int) -> Escalation:
        """Pods became faulty: they leave, and what the labels say with them."""
        hot = [one for one in faults if one.is_hot_switch]
        if len(hot) == len(faults):
            return Escalation((self._wanted("pod", faults, sought=False, only=True),))
        rungs = ladder(self.rules, self.shape, self.settings)
        scope = self._scope_now(rungs)
        if self._plans_first and scope != "job":
            scope = "pod"  # the healthy pods around a further fault wait for places as those around the first
        if self.rules.limit != "pod" and any(one.is_master for one in faults):
            scope = "job"
        wanted = self._wanted(scope, faults, sought=True)
        if not self._plans_first:
            return Escalation((wanted,))
        return self._planned(wanted, faults, seen_ms)

    def _planned(self, wanted: Wanted, faults: Sequence[PodFault], seen_ms: int) -> Escalation:
        """Pods leave once there are new places; without, faulty ones that cannot run on, or have waited long enough.

        Healthy pods leave without places for a drain alone: a person asked for it.
        """
        tried = wanted._replace(needs_place=True)
        if wanted.scope == "job":
            tried = tried._replace(sought=wanted.ranks)
        elif any(one.kind not in _STILL_RUN for one in faults):
            return Escalation((wanted,))
        is_drain = any(one.kind is PodFaultKind.DRAIN for one in faults)
        if not is_drain and not set(wanted.ranks) <= {*wanted.faulty, *self.progress.unplaced}:
            return Escalation((tried,))
        due_ms = seen_ms + self.settings.fault_wait_ms
        if self.at_ms >= due_ms:
            return Escalation((tried, wanted))
        return Escalation((tried,), due_ms)

    def for_waiting(self) -> Escalation:
        """Nothing new is faulty, and ranks have no place: give them one, or let more pods leave."""
        progress = self.progress
        unplaced = tuple(sorted(progress.unplaced))
        last = progress.last
        place = Wanted(
            last.scope if last is not None and last.scope != "job" else "pod",
            "place",
            unplaced,
            tuple(rank for rank in (last.faulty if last is not None else ()) if rank in progress.unplaced),
            last.kind if last is not None else "",
            _gets_place(unplaced),
            self._since_ms(),
            sought=unplaced,
            needs_place=True,
        )
        return self._escalated([place, *self._single_places(place)], last)

    def _single_places(self, place: Wanted) -> list[Wanted]:
        """Places for single ranks, where the others run without them: with the limit ``pod``, or process recovery."""
        if len(place.ranks) == 1 or not (self.rules.limit == "pod" or self.rules.process_recovery == "on"):
            return []
        return [
            place._replace(
                ranks=(rank,),
                faulty=(rank,) if rank in place.faulty else (),
                cause=_gets_place((rank,)),
                sought=(rank,),
            )
            for rank in place.ranks[:_SINGLE_PLACES]
        ]

    def _escalated(self, options: list[Wanted], last: Recovery | None) -> Escalation:
        """Places for the ranks that have none; and the next scope, once its time has come."""
        rungs = ladder(self.rules, self.shape, self.settings)
        now = _index(rungs, self._scope_now(rungs))
        if last is not None and rungs[now].scope == "job":
            return Escalation((*options, self._kept(self._grown(rungs[now], 0))))  # paused, and no pod-rescheduling
        began_ms = self._clock_ms()
        if now + 1 >= len(rungs) or not began_ms:
            return Escalation(tuple(options))
        base_ms = began_ms - (0 if self._is_paused_since else rungs[now].after_ms)
        due_ms = base_ms + rungs[now + 1].after_ms
        if self.at_ms < due_ms:
            return Escalation(tuple(options), due_ms)
        grown = self._grown(rungs[now + 1], self.at_ms - began_ms)
        if self._plans_first:
            return self._beyond(options, rungs[now + 1 :], base_ms, began_ms)
        return Escalation((*options, grown))

    def _beyond(self, options: list[Wanted], rungs: Sequence[Rung], base_ms: int, began_ms: int) -> Escalation:
        """Healthy pods leave for places only, on the last rung too: without one, the others run on."""
        again_ms = 0
        for rung in rungs:
            due_ms = base_ms + rung.after_ms
            if self.at_ms < due_ms:
                again_ms = due_ms
                break
            options.append(self._kept(self._grown(rung, self.at_ms - began_ms)))
        return Escalation(tuple(options), again_ms)

    @property
    def _plans_first(self) -> bool:
        """Whether healthy pods leave for places only."""
        return self.settings.plan_before_delete and differs(self.settings).places_before_deletion

    def _kept(self, grown: Wanted) -> Wanted:
        """A larger step, that waits for places of all its ranks where places are planned first."""
        return grown._replace(needs_place=True, sought=grown.ranks) if self._plans_first else grown

    def _clock_ms(self) -> int:
        """When the clock of the step began to run; 0 while it stands: pods leave, or no new pod waits.

        The first new pod that has no place starts it; those that come later, and other ranks, do not start it anew.
        """
        progress = self.progress
        if progress.leaving:
            return 0
        times = [progress.step_ms, progress.freed_ms]
        if differs(self.settings).clock_of_new_pods:
            waiting_ms = [since_ms for rank, since_ms in progress.waiting.items() if rank in progress.unplaced]
            if not waiting_ms:
                return 0
            times.append(min(waiting_ms))
        if self.rules.process_recovery == "pause":
            times.append(progress.paused_ms)
        return max(times)

    @property
    def _is_paused_since(self) -> bool:
        """Whether process recovery was paused after the newest step: the clock begins anew with that."""
        return self.rules.process_recovery == "pause" and self.progress.paused_ms > self.progress.step_ms

    def _scope_now(self, rungs: Sequence[Rung]) -> Scope:
        """Scope that the recovery has reached, if one is under way."""
        last = self.progress.last
        if last is None or not self.progress.is_open:
            return rungs[0].scope
        return rungs[_index(rungs, last.scope)].scope

    def _since_ms(self) -> int:
        last = self.progress.last
        return last.since_ms if last is not None and self.progress.is_open else self.at_ms

    def _wanted(self, scope: Scope, faults: Sequence[PodFault], *, sought: bool, only: bool = False) -> Wanted:
        """Faulty pods leave, and what leaves with them; so do ranks without a place, to be placed with them."""
        faulty = tuple(one.rank for one in faults)
        scope, ranks = (
            (scope, tuple(sorted(faulty))) if only else self._closed(scope, (*faulty, *self.progress.unplaced))
        )
        how = self._how(faults)
        counts = any(one.kind is PodFaultKind.POD_FAILED for one in faults)
        return Wanted(
            scope,
            how,
            ranks,
            faulty,
            faults[0].kind.value,
            _cause(faults),
            self._since_ms(),
            self._until_ms(how),
            self.left - 1 if counts else -1,
            ranks if sought and scope != "job" else (),
            saves=self._saves(faults),
        )

    def _grown(self, rung: Rung, waited_ms: int) -> Wanted:
        """More pods leave: what left before found no place."""
        last = self.progress.last
        scope, ranks = self._closed(rung.scope, self.progress.unplaced)
        how: How = last.how if last is not None and last.how in {"grace", "force"} else self._how(())
        waited = f" for {waited_ms / 1000:g} s" if waited_ms else ""
        return Wanted(
            scope,
            how,
            ranks,
            tuple(rank for rank in (last.faulty if last is not None else ()) if rank in ranks),
            last.kind if last is not None else "",
            f"the new {_pods(sorted(self.progress.unplaced))} found no place{waited}",
            self._since_ms(),
            self._until_ms(how),
            sought=ranks if scope != "job" else (),
            saves=last is not None and last.saves,
        )

    def _closed(self, scope: Scope, lost: Iterable[int]) -> tuple[Scope, tuple[int, ...]]:
        """What leaves with lost ranks; the whole job if the master is in the block that goes, or nothing is left."""
        ranks = block_of(self.shape, scope, lost)
        takes_master = scope not in {"pod", "job"} and self.shape.has_master and 0 in ranks
        if takes_master or len(ranks) >= self.shape.pods:
            return "job", block_of(self.shape, "job", ranks)
        return scope, ranks

    def _how(self, faults: Sequence[PodFault]) -> How:
        if faults and all(one.kind is PodFaultKind.SUB_HEALTH for one in faults):
            return "grace" if self.rules.strategy == "graceExit" else "force"
        return "grace" if self.rules.scheduling == "grace" else "force"

    def _saves(self, faults: Sequence[PodFault]) -> bool:
        """Whether agents save a checkpoint first: all faults are sub-health, and no process recovery does it."""
        is_mild = bool(faults) and all(one.kind is PodFaultKind.SUB_HEALTH for one in faults)
        return is_mild and self.rules.strategy == "graceExit" and self.rules.process_recovery != "on"

    def _until_ms(self, how: How) -> int:
        return self.at_ms + self.settings.grace_over_ms if how == "grace" else 0


def _index(rungs: Sequence[Rung], scope: Scope) -> int:
    """Place of a scope on a ladder; of one that is not on it any more, the last place."""
    found = [number for number, rung in enumerate(rungs) if rung.scope == scope]
    return found[0] if found else 0 if scope == "pod" else len(rungs) - 1


def _cause(faults: Sequence[PodFault]) -> str:
    """The first fault as a sentence, and how many more there are."""
    first = faults[0]
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"pod of rank {first.rank} on {first.node}: {first.reason}{more}"


def _gets_place(ranks: Sequence[int]) -> str:
    return f"the new {_pods(ranks)} {'gets' if len(ranks) == 1 else 'get'} a place"


def _pods(ranks: Sequence[int]) -> str:
    """Ranks as the subject of a sentence."""
    shown = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""  # noqa: PLR2004  # as many as shown
    return f"{'pod' if len(ranks) == 1 else 'pods'} of {'rank' if len(ranks) == 1 else 'ranks'} {shown}{more}"
