"""Living through a history: steps become facts, facts and moments become records, and whoever watches sees both.

Longer than 400 lines because each verb of a step has its method here.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.turn import MissingShards, Recorded
from berth.core.state.admission import Holder, Receipt, admit, cancel, holder_of, steer
from berth.core.state.internal_errors import SetAside
from berth.core.state.ledger import Holding
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, OutcomeSeen, PodsSeen, TimerSeen
from berth.schemas.fault_facts import GroupSeen, ReplacementsSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.ledger import Epoch, Round
from berth.schemas.message import Message
from berth.schemas.recording import Entry
from berth.schemas.subjects import token
from berth.services.inventory.pods.foreign import PREFIX
from tests.fuzz import constraint_tally, tally, trouble, waiting
from tests.fuzz.constraint_draws import constrained
from tests.fuzz.failure import Failure
from tests.fuzz.fault_draws import TRAIT, faulty_pods, group_of, later_outcome, replacements_of
from tests.fuzz.ground import Ground, Told
from tests.fuzz.neighbours import Neighbours
from tests.fuzz.plain_jobs import a_plain_job
from tests.fuzz.pod_facts import foreign_pods, outcome_of, pods_of_attempt, stray_pods
from tests.fuzz.queues import QUEUES, in_a_queue, queue_fact, wish
from tests.fuzz.requests import SIZES, a_request
from tests.fuzz.seat import Seat
from tests.fuzz.settings import settings_of
from tests.fuzz.steps import Step, Way
from tests.fuzz.storage import Storage
from tests.support.honest_components import told_of

NAMES: Final = 12
"""Jobs that have a name of their own; so names are used again."""
FOREIGN: Final = 3
_MOMENTS_MS: Final = (0, 1, 1, 5, 50, 1_000)
_LOST: Final = 0
_VOID: Final = 1
_UNKNOWN: Final = 2
_NOBODY: Final = MissingShards()
_OF_JOBS: Final = (PodsSeen, OutcomeSeen, ReplacementsSeen)
"""Facts whose subjects are given in tokens."""


class Watch(Protocol):
    """Who sees what happens."""

    def fact(self, entry: Entry) -> None:
        """A fact was stored and applied."""

    def opened(
        self, at_ms: int, turn: Recorded | None, missing_shards: MissingShards, set_aside: Sequence[SetAside]
    ) -> None:
        """A turn was begun, what was decided in it, and who was set aside when it was opened."""

    def taken_back(self) -> None:
        """What was decided was not stored."""

    def stored(self, entry: Entry, record: Round | None) -> None:
        """A record was stored and adopted."""


class World:
    """A cell that lives through a history.

    Args:
        way: How it is.
        watch: Who sees it.
        count: What happened, by feature.
    """

    def __init__(self, way: Way, watch: Watch, count: Counter[str]) -> None:
        self.way = way
        self.seat = Seat()
        self.ground = Ground(way)
        self.neighbours = Neighbours(self.ground.names, way.traits)
        self.storage = Storage(self.ground.names, way.traits)
        self.now_ms = 1
        self.missing_shards = _NOBODY
        self.facts_seq = 0
        self._watch = watch
        self._count = count
        self._epochs = 0
        self._groups: dict[int, GroupSeen] = {}
        self._verbs: dict[str, Callable[[Step, random.Random], None]] = {
            "submit": self._submit,
            "update": self._update,
            "cancel": self._cancel,
            "seize": self._seize,
            "bury": self._bury,
            "pods": self._pods,
            "stray": self._stray,
            "outcome": self._outcome,
            "foreign": self._foreign,
            "health": lambda step, chance: self._tell(self.ground.health(step.one, step.two, chance)),
            "node": lambda step, chance: self._tell(self.ground.node(step.one, step.two, chance)),
            "topology": lambda _, chance: self._tell(self.ground.topology(chance)),
            "usage": self._usage,
            "namespace": lambda step, _: self._tell(self.neighbours.namespace(step.one, step.two)),
            "storage": lambda step, chance: self._tell(self.storage.change(step.one, step.two, chance)),
            "timer": lambda *_: self._fact("timer", TimerSeen(self.now_ms)),
            "turn": self._turn_away,
            "silence": self._fall_silent,
            "epoch": lambda *_: self._epoch(),
            "garbage": self._garbage,
            "group": self._group,
            "replacement": self._replacement,
            "drain": lambda step, chance: self._tell(self.ground.drain(step.one, step.two, self.now_ms, chance)),
            "queue": self._queue,
            "steer": self._steer,
            "waiting": self._waiting,
            "break": self._break,
            "follow": self._follow,
            "repair": lambda step, chance: self._tell(trouble.repaired(self.ground, self.now_ms, step.one, chance)),
            "pause": self._pause,
        }

    def begin(self) -> None:
        """Nodes come, and a dispatcher."""
        self._tell(self.ground.begin())
        if any(fields.get("needs_health") for fields in self.way.settings):
            self._tell(self.ground.well())
        self._tell(self.neighbours.begin())
        self._tell(self.storage.begin())
        self._epoch()

    def live(self, steps: Sequence[Step]) -> None:
        """Go through steps."""
        for step in steps:
            self.act(step)

    def act(self, step: Step) -> None:
        """Let something happen, then turn."""
        chance = random.Random(step.three)  # noqa: S311  # the same for the same step
        self.now_ms += _MOMENTS_MS[step.three % len(_MOMENTS_MS)]
        self._verbs[step.verb](step, chance)
        for _ in range(step.turns):
            self.turn()

    def turn(self, how: int = -1) -> bool:
        """A turn; returns whether a record was stored."""
        self.now_ms += 1
        seat = self.seat
        opening, set_aside = seat.scheduler.open(self.now_ms)
        turn = None if opening is None else seat.on(opening, self.missing_shards)
        self._watch.opened(self.now_ms, turn, self.missing_shards, set_aside)
        if turn is None:
            return False
        record = turn.round
        if how == _LOST:
            self._count["record: lost"] += 1
            seat.take_back()
            self._watch.taken_back()
            return False
        if how in {_VOID, _UNKNOWN}:
            self._count["record: behind another"] += 1
            rival = Round(epoch=0, base_seq=seat.state.fold.base_seq, facts_seq=0, at_ms=1, number=999)
            void = seat.encoded(rival) if seat.state.fold.head % 2 else encode(rival)  # of a past epoch, or not chained
            self._record(void if how == _VOID else encode(TimerSeen(1)), None, counts=False)
            seat.take_back()
            self._watch.taken_back()
            return False
        self._record(seat.encoded(record), record)
        return True

    def settle(self) -> None:
        """Turn with all shards until nothing is decided at this moment, some turns at most."""
        self.missing_shards = _NOBODY
        for _ in range(12):
            if not self.turn():
                return

    def _record(self, data: bytes, record: Round | None, *, counts: bool = True) -> None:
        sequence = self.seat.state.fold.head + 1
        if record is not None:
            tally.note_record(self._count, record, self.seat.state)
            constraint_tally.note_record(self._count, record, self.seat.state)
        folded = self.seat.stored(sequence, data)
        if counts == bool(folded.void):
            raise Failure("ledger: a message counts that is void, or the other way about", folded.void)
        tally.note_folded(self._count, folded)
        self._watch.stored(Entry(sequence, data), record)

    def _fact(self, kind: str, fact: Message, *, data: bytes | None = None) -> None:
        self.facts_seq += 1
        raw = encode(fact) if data is None else data
        entry = Entry(self.facts_seq, raw, f"berth.c.fact.{kind}")
        problem = self.seat.fact(entry.subject, entry.sequence, raw)
        self._count["fact: undecodable" if problem else f"fact: {kind.partition('.')[0]}"] += 1
        self._watch.fact(entry)

    def _tell(self, facts: Told) -> None:
        for subject, fact in facts:
            head, _, name = subject.partition(".")
            tally.note_ground(self._count, fact)
            constraint_tally.note_fact(self._count, fact)
            parts = name.split(".", 1) if head in {"claim", "unbound", "drain"} else [name]
            tokens = [name] if isinstance(fact, _OF_JOBS) else map(token, parts)
            self._fact(".".join([head, *tokens]), fact)

    def _epoch(self) -> None:
        fold = self.seat.state.fold
        settings = settings_of(self.way.settings[self._epochs % len(self.way.settings)])
        self._epochs += 1
        tally.note_settings(self._count, settings)
        resumes = self._epochs % 3 > 0
        number, facts_seq, rules = fold.epoch + 1, self.seat.state.facts_seq, rules_of(settings)
        epoch = Epoch(number, fold.base_seq, facts_seq, self.now_ms, "d", settings, resumes, rules)
        self._record(self.seat.encoded(epoch), None)

    # Requests and verdicts on them.

    def _submit(self, step: Step, chance: random.Random) -> None:
        name = f"j{step.one % NAMES}"
        if step.two % 5:
            name = self._free_name(step.one)
        uid = f"{name}-{step.one // NAMES % 200}"
        if "uids" in self.way.traits and chance.random() < 0.15:
            uid = self._used_uid(f"u{step.one % 3}") or uid
        request = self._request(name, uid, step.two, chance)
        self._ask(request)
        if TRAIT in self.way.traits and chance.random() < 0.8:
            self._say_group(request.name, chance)

    def _say_group(self, job: str, chance: random.Random) -> None:
        fact = group_of(job, self.now_ms, chance, self.way.traits)
        self._fact(f"group.default.{token(fact.name)}", fact)

    def _used_uid(self, uid: str) -> str:
        """A uid that somebody else may have, or have had; empty for one whose pods are not gone although its job is."""
        state = self.seat.state
        return "" if uid in state.fold.gangs and uid not in state.name_of else uid

    def _free_name(self, number: int) -> str:
        """The first name from one on that nobody has, or that one."""
        jobs = self.seat.state.jobs
        names = [f"j{(number + more) % NAMES}" for more in range(NAMES)]
        known = ((name, jobs.get(("default", name))) for name in names)
        return next((name for name, job in known if job is None or self._holder(job).is_over), names[0])

    def _request(self, name: str, uid: str, two: int, chance: random.Random) -> JobRequest:
        families = self.way.families
        product = families[two % len(families)]
        if "aliens" in self.way.traits and chance.random() < 0.1:
            product = sorted(SIZES)[two % len(SIZES)]
        most = max(1, self.way.nodes // len(families))
        if "plain-jobs" in self.way.traits and chance.random() < 0.2:
            request = a_plain_job(name, uid, NAMES, chance, self.way.traits)
        else:
            request = a_request(name, uid, product, chance, self.way.traits, most=most if two % 3 else 9)
        if "constraints" in self.way.traits and chance.random() < (0.95 if "simple" in self.way.traits else 0.6):
            request = constrained(request, chance, self.way.traits)
        if QUEUES in self.way.traits:
            request = in_a_queue(request, chance)
        tally.note_request(self._count, request)
        constraint_tally.note_request(self._count, request)
        return request

    def _queue(self, _: Step, chance: random.Random) -> None:
        fact = queue_fact(self.way.families, chance)
        self._fact(f"queue.{token(fact.queue.name)}", fact)

    def _waiting(self, step: Step, chance: random.Random) -> None:
        jobs = sorted({name for _, name in self.seat.state.jobs})
        number = step.one % waiting.NAMES
        fact = waiting.waiting_of(number, self._groups.get(number), self.way.families, jobs, chance)
        self._groups[number] = fact
        self._fact(f"group.default.{fact.name}", fact)

    def _update(self, step: Step, chance: random.Random) -> None:
        keys = sorted(self.seat.state.jobs)
        if keys:
            job = self.seat.state.jobs[keys[step.one % len(keys)]]
            self._ask(self._request(job.name, job.uid, step.two, chance))

    def _ask(self, request: JobRequest) -> None:
        state = self.seat.state
        key = (request.namespace, request.name)
        job = state.jobs.get(key)
        gang = state.fold.gangs.get(job.uid) if job is not None else None
        other = state.name_of.get(request.uid)
        holder = msgspec.structs.replace(
            holder_of(job, gang), namesake=other if other is not None and other != key else None
        )
        verdict = admit(request, self._receipt(), holder, state.fold.settings)
        tally.note_verdict(self._count, verdict, job)
        self._job(verdict)

    def _cancel(self, step: Step, chance: random.Random) -> None:
        job = self._some_job(step.one)
        if job is None:
            return
        wish = JobCancel("default", job.name, job.uid if chance.random() < 0.5 else "")
        verdict = cancel(wish, self._receipt(), self._holder(job))
        if verdict is not None:
            self._job(verdict)

    def _steer(self, step: Step, chance: random.Random) -> None:
        job = self._some_job(step.one)
        verdict = steer(wish(job, chance), self._receipt(), self._holder(job)) if job is not None else None
        if verdict is not None:
            self._count[f"steered: {'held' if verdict.hold is not None else 'not held'}"] += 1
            self._job(verdict)

    def _seize(self, step: Step, chance: random.Random) -> None:
        """Another writer gives a name to a new job, whatever became of the old one."""
        job = self._some_job(step.one)
        if job is None:
            return
        request = self._request(job.name, f"{job.name}-s{step.two % 50}", step.two, chance)
        verdict = admit(request, self._receipt(), Holder(), self.seat.state.fold.settings)
        gang = self.seat.state.fold.gangs.get(job.uid)
        self._count[f"name is given anew: {gang.phase if gang is not None else 'unknown'}"] += 1
        self._job(verdict)

    def _bury(self, step: Step, _: random.Random) -> None:
        """A job that is over gives up its name, unless pods of an older one of that name are left."""
        job = self._some_job(step.one, is_over=True)
        holdings = self.seat.state.fold.holdings.values()
        if job is not None and not any(one.name == job.name for one in holdings):
            self._count["fact: tombstone of a job"] += 1
            fact = msgspec.structs.replace(
                job, state="tombstone", request=None, refusal=None, rejection=None, at_ms=self.now_ms
            )
            self._fact(f"job.default.{job.name}", fact)

    def _some_job(self, number: int, *, is_over: bool = False) -> JobSeen | None:
        state = self.seat.state
        keys = [key for key in sorted(state.jobs) if not is_over or self._holder(state.jobs[key]).is_over]
        return state.jobs[keys[number % len(keys)]] if keys else None

    def _holder(self, job: JobSeen) -> Holder:
        return holder_of(job, self.seat.state.fold.gangs.get(job.uid))

    def _receipt(self) -> Receipt:
        last = self.seat.state.intake_seq
        return Receipt(last + 1, last, self.now_ms)

    def _job(self, verdict: JobSeen) -> None:
        self._fact(f"job.default.{verdict.name}", verdict)

    # What becomes of placements.

    def _some_holding(self, number: int) -> Holding | None:
        holdings = self.seat.state.fold.holdings
        keys = sorted(holdings)
        return holdings[keys[number % len(keys)]] if keys else None

    def _identity(self, holding: Holding, chance: random.Random) -> tuple[str, int]:
        """Uid and attempt of a fact about a holding: mostly its own. Pods of other schedulers have no attempts."""
        if not holding.foreign and "uids" in self.way.traits and chance.random() < 0.2:
            if chance.random() < 0.6:
                tally.note_other_uid(self._count, holding)
                job = self.seat.state.jobs.get((holding.namespace, holding.name))
                is_other = job is not None and job.uid != holding.uid
                return (job.uid if job is not None and is_other else f"{holding.uid}-x"), holding.attempt
            return holding.uid, max(0, holding.attempt + chance.choice((-1, 1)))
        return holding.uid, holding.attempt

    def _pods(self, step: Step, chance: random.Random) -> None:
        holding = self._some_holding(step.one)
        if holding is not None:
            fact = pods_of_attempt(holding, *self._identity(holding, chance), chance)
            if TRAIT in self.way.traits and not holding.foreign:
                fact = faulty_pods(fact, holding, self.now_ms, chance)
            tally.note_pods(self._count, fact)
            self._fact(f"pod.default.{token(holding.name)}", fact)

    def _group(self, step: Step, chance: random.Random) -> None:
        """A PodGroup says something else about faults, and its jobs are others."""
        job = self._some_job(step.one)
        if job is not None and TRAIT in self.way.traits:
            self._say_group(job.name, chance)

    def _replacement(self, step: Step, chance: random.Random) -> None:
        """New pods of ranks wait for places; mostly those of a gang that recovers."""
        holdings = self.seat.state.fold.holdings
        recovering = [key for key in sorted(holdings) if holdings[key].step]
        holding = holdings[recovering[step.one % len(recovering)]] if recovering else self._some_holding(step.one)
        if holding is not None and not holding.foreign and TRAIT in self.way.traits:
            self._fact(f"replacement.default.{holding.name}", replacements_of(holding, self.now_ms, chance))

    def _break(self, step: Step, chance: random.Random) -> None:
        """A fault of a gang that runs."""
        holding = self._some_own(step.one, chance)
        if holding is not None:
            cause = trouble.CAUSES[step.two % len(trouble.CAUSES)]
            self._count[f"broken: {cause}"] += 1
            self._tell(trouble.broken(holding, self.ground, self.seat.state, cause, self.now_ms, chance))

    def _follow(self, step: Step, chance: random.Random) -> None:
        """The components do what the ledger says of a gang, or of all of them."""
        holding = self._some_own(step.one, chance)
        if holding is None:
            return
        every = self.seat.state.fold.holdings
        chosen = [holding] if step.two % 4 else [every[key] for key in sorted(every) if not every[key].foreign]
        for one in chosen:
            self._tell(told_of(one, self.seat.state, self.now_ms, chance))

    def _some_own(self, number: int, chance: random.Random) -> Holding | None:
        """A placed gang, mostly one that recovers if there is one."""
        every = self.seat.state.fold.holdings
        own = [every[key] for key in sorted(every) if not every[key].foreign]
        recovering = [one for one in own if one.recovers or one.ending]
        chosen = recovering if recovering and chance.random() < 0.6 else own
        return chosen[number % len(chosen)] if chosen else None

    def _pause(self, step: Step, chance: random.Random) -> None:
        """Nothing happens for a while, and the dispatcher turns when it is due."""
        due_ms = self.seat.scheduler.next_due_ms
        pause_ms = chance.choice(trouble.PAUSES_MS)
        if due_ms > self.now_ms and step.two % 2:
            pause_ms = due_ms - self.now_ms - chance.choice((0, 1))
        self.now_ms += max(0, pause_ms)

    def _stray(self, step: Step, chance: random.Random) -> None:
        name = f"j{step.one % NAMES}"
        fact = stray_pods(name, f"{name}-{step.two % 3}", 1 + step.two % 2, self.ground.names, chance)
        self._count["pods: of nobody's job"] += 1
        self._fact(f"pod.default.{name}", fact)

    def _outcome(self, step: Step, chance: random.Random) -> None:
        holding = self._some_holding(step.one)
        if holding is not None and not holding.foreign:
            fact = outcome_of(holding, *self._identity(holding, chance), chance)
            if TRAIT in self.way.traits:
                fact = later_outcome(fact, holding, chance)
            self._count[f"outcome: {fact.state}"] += 1
            self._fact(f"outcome.default.{holding.name}", fact)

    def _foreign(self, step: Step, chance: random.Random) -> None:
        name = f"{PREFIX}f{step.one % FOREIGN}"
        uid = f"{name}-{chance.choice((0, 0, 0, 1))}"
        self._count["pods: of another scheduler"] += 1
        traits = (*self.way.traits, "blocks")
        self._fact(f"pod.default.{token(name)}", foreign_pods(name, uid, self.ground.names, traits, chance))

    def _usage(self, step: Step, chance: random.Random) -> None:
        holdings = self.seat.state.fold.holdings
        held = [holdings[key] for key in sorted(holdings) if not holdings[key].foreign]
        self._tell(self.neighbours.usage(step.two, held, chance))
        self._count.update(f"usage: {what}" for what in self.neighbours.happened)

    # What becomes of the machinery.

    def _turn_away(self, step: Step, _: random.Random) -> None:
        self.turn(step.two % 6)

    def _fall_silent(self, step: Step, chance: random.Random) -> None:
        """Some shards do not answer from now on; or all answer again."""
        count = self.way.shards
        missing = sorted(chance.sample(range(count), chance.randint(1, count))) if step.two % 3 else []
        self.missing_shards = MissingShards(count, missing) if missing else _NOBODY

    def _garbage(self, step: Step, chance: random.Random) -> None:
        """A message that can never be applied, or that this release does not know."""
        name = f"j{step.one % NAMES}"
        raw = encode(TimerSeen(self.now_ms))
        cut = chance.choice((raw[:-1], b"", raw, encode(Round(1, 1, 1, 1, 1))))
        self._fact(f"pod.default.{name}", TimerSeen(1), data=cut)
