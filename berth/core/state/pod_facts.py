"""Pod facts: pods and outcomes of binding by job, as the latest facts show them, until their job gives up its name."""

from collections.abc import Container, Mapping

from berth.core.changes import JobKey
from berth.core.state.holdings.pod_phases import ENDED
from berth.core.state.ledger import LedgerFold
from berth.schemas.facts import OutcomeSeen, PodsSeen


class PodFacts:
    """Pods and outcomes of binding, by job."""

    def __init__(self) -> None:
        self.pods: dict[JobKey, PodsSeen] = {}
        self.outcomes: dict[JobKey, OutcomeSeen] = {}
        self.foreign: dict[str, JobKey] = {}
        """Pods of other schedulers, by the uid of their gang."""
        self.short: dict[str, None] = {}
        """Gangs (uid) of other schedulers of which some chips have another owner."""
        self.claimed: dict[JobKey, dict[str, None]] = {}
        """Foreign pods (uid) that may be of a job that Berth placed, by namespace and uid of the job."""
        self._claims: dict[str, tuple[JobKey, str]] = {}
        """Name and uid of the job of which a foreign pod (uid) may be."""
        self._subjects_of: dict[JobKey, dict[str, None]] = {}
        self._podless: dict[JobKey, int] = {}
        """Names under which facts show no pod that lives, and the sequences of those facts, ascending."""

    def note_pods(self, fact: PodsSeen, subject: str, sequence: int) -> dict[JobKey, None]:
        """Note a fact about the pods of a job.

        Args:
            fact: The fact.
            subject: Subject on which it is stored.
            sequence: Its sequence.

        Returns:
            Jobs of which foreign pods may be since the fact, or were until it.
        """
        key = (fact.namespace, fact.gang)
        before = self.pods.get(key)
        if before is not None and before.uid != fact.uid:
            self._lose(key, before)
        self.pods[key] = fact
        self._podless.pop(key, None)
        if all(phase in ENDED for phase in fact.phase):
            self._podless[key] = sequence
            self.short.pop(fact.uid, None)
        self._subjects_of.setdefault(key, {})[subject] = None
        if fact.foreign and fact.phase:
            self.foreign[fact.uid] = key
        else:
            self.foreign.pop(fact.uid, None)
        return self._note_claim(fact)

    def _note_claim(self, fact: PodsSeen) -> dict[JobKey, None]:
        claim = None
        if fact.foreign and fact.job and any(phase not in ENDED for phase in fact.phase):
            claim = (fact.namespace, fact.job), fact.job_uid
        known = self._claims.get(fact.uid)
        if claim == known:
            return {}
        changed: dict[JobKey, None] = {}
        if known is not None:
            (namespace, _), uid = known
            pods = self.claimed[namespace, uid]
            del pods[fact.uid], self._claims[fact.uid]
            if not pods:
                del self.claimed[namespace, uid]
            changed[known[0]] = None
        if claim is not None:
            self._claims[fact.uid] = claim
            self.claimed.setdefault((fact.namespace, fact.job_uid), {})[fact.uid] = None
            changed[claim[0]] = None
        return changed

    def note_outcome(self, fact: OutcomeSeen, subject: str) -> None:
        """Note a fact about the binding of a job; ``subject`` is where it is stored."""
        key = (fact.namespace, fact.name)
        self.outcomes[key] = fact
        self._subjects_of.setdefault(key, {})[subject] = None

    def forget_podless(self, jobs: Container[JobKey], fold: LedgerFold) -> list[str]:
        """Forget facts without pods under names that no job has: of pods of other schedulers, or facts that came late.

        No tombstone of a job ever does. Records must be based on the fact: an earlier one may still adopt pods that are
        gone.

        Args:
            jobs: Names that jobs have.
            fold: The folded ledger.

        Returns:
            Subjects of the facts that were forgotten.
        """
        over: list[JobKey] = []
        for key, sequence in self._podless.items():
            if sequence > fold.facts_seq:
                break
            if (self.pods[key].uid, self.pods[key].attempt) not in fold.holdings:
                over.append(key)
        subjects: list[str] = []
        for key in over:
            del self._podless[key]
            if key not in jobs:
                subjects += self.forget(key)
        return subjects

    def give_up(self, key: JobKey, fold: LedgerFold) -> Mapping[str, None]:
        """Forget a job whose name is free; returns the subjects of its facts.

        While an attempt holds chips, the records that released them are lost or not known yet: then its pods tell that
        they ended, and :meth:`forget_podless` forgets them later.
        """
        seen = self.pods.get(key)
        return {} if seen is not None and (seen.uid, seen.attempt) in fold.holdings else self.forget(key)

    def forget(self, key: JobKey) -> Mapping[str, None]:
        """Forget a job; returns the subjects of its facts."""
        seen = self.pods.pop(key, None)
        if seen is not None:
            self._lose(key, seen)
        self.outcomes.pop(key, None)
        self._podless.pop(key, None)
        return self._subjects_of.pop(key, {})

    def _lose(self, key: JobKey, seen: PodsSeen) -> None:
        """Forget what follows from a fact about pods that no other one about the same gang replaces."""
        self.short.pop(seen.uid, None)
        if self.foreign.get(seen.uid) == key:
            del self.foreign[seen.uid]
