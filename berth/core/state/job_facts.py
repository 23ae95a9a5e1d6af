"""Job facts: jobs by name, and which names uids have, as the verdicts on requests say."""

from berth.core.changes import ChangesBuilder, JobKey
from berth.core.state.kept_facts import Effect
from berth.core.state.ledger import LedgerFold
from berth.schemas.facts import JobSeen


class JobFacts:
    """Jobs of a cell.

    Args:
        fold: The folded ledger: it forgets gangs whose name is free again.
    """

    def __init__(self, fold: LedgerFold) -> None:
        self.jobs: dict[JobKey, JobSeen] = {}
        self.name_of: dict[str, JobKey] = {}
        """Job of each uid: jobs that were accepted and have not given up their names."""
        self.intake_seq = 0
        """Highest INTAKE sequence that has a verdict."""
        self.covered: dict[JobKey, JobSeen] = {}
        """Verdicts that do not count, by the names of which they are the newest message: a dispatcher stored them that
        led no more. A reader of the newest alone takes them for what counts, until the leader stores that again."""
        self._fold = fold

    def note(self, fact: JobSeen, *, latest: bool, facts_seq: int, found: ChangesBuilder) -> Effect:
        """Note a verdict.

        Args:
            fact: The verdict.
            latest: It comes from where verdicts between are missing.
            facts_seq: Sequence up to which facts are known.
            found: Receives what it changes.
        """
        key = (fact.namespace, fact.name)
        known = self.jobs.get(key)
        if fact.state == "tombstone":
            return self._tombstone(fact, known, latest=latest, facts_seq=facts_seq, found=found)
        if not latest and (fact.intake_seq <= self.intake_seq or fact.after_seq > self.intake_seq):
            # Behind a verdict that was lost it is no old one: another follows once the request is judged again.
            return self._cover(key, known, fact) if fact.intake_seq <= self.intake_seq else "void"
        if known is not None:
            self._give_up(known)
        self.jobs[key] = fact
        self.covered.pop(key, None)
        if fact.state != "rejected":
            self.name_of[fact.uid] = key
        if fact.uid in self._fold.gangs:
            found.gangs_to_examine[fact.uid] = None
        if known is not None and known.uid != fact.uid:
            found.gangs_to_examine[known.uid] = None
            self._forget(known.uid, facts_seq)
        self.intake_seq = max(self.intake_seq, fact.intake_seq)
        found.jobs_changed[key] = None
        return "folded"

    def _tombstone(
        self, fact: JobSeen, known: JobSeen | None, *, latest: bool, facts_seq: int, found: ChangesBuilder
    ) -> Effect:
        # It speaks of a verdict that was a fact before it: that one counts, also where it is not kept any more.
        self.intake_seq = max(self.intake_seq, fact.intake_seq)
        key = (fact.namespace, fact.name)
        if known is None or (known.uid != fact.uid and not (latest and fact.intake_seq >= known.intake_seq)):
            return self._cover(key, known, fact)
        self.covered.pop(key, None)
        del self.jobs[key]
        self._give_up(known)
        if known.uid != fact.uid:
            self._forget(known.uid, facts_seq)
        self._forget(fact.uid, facts_seq)
        found.jobs_changed[key] = None
        return "gone"

    def _cover(self, key: JobKey, known: JobSeen | None, fact: JobSeen) -> Effect:
        """Note a verdict that does not count; it says what is known if the leader stored that again.

        On a name that is free that is a tombstone without a uid. One of an older job says less: it does not cover all
        verdicts on the name.
        """
        is_free = known is None and fact.state == "tombstone"
        if fact == known or (is_free and (not fact.uid or fact.intake_seq == self.intake_seq)):
            self.covered.pop(key, None)
        else:
            self.covered[key] = fact
        return "void"

    def _give_up(self, job: JobSeen) -> None:
        if self.name_of.get(job.uid) == (job.namespace, job.name):
            del self.name_of[job.uid]

    def _forget(self, uid: str, facts_seq: int) -> None:
        if uid not in self.name_of:  # a rejected request may have had the uid of a running job
            self._fold.forget(uid, facts_seq)

    def forget_unnamed(self, facts_seq: int) -> None:
        """Let the ledger's fold drop gangs whose name belongs to another job or to none.

        Args:
            facts_seq: Sequence up to which facts are known.
        """
        for gang in list(self._fold.gangs.values()):
            job = self.jobs.get((gang.namespace, gang.name))
            if job is None or job.uid != gang.uid:
                self._fold.forget(gang.uid, facts_seq)
