"""Output of ``berth explain``: the request, the decision, its basis, the runner-up, what is missing, what helps."""

from typing import Final

import msgspec

from berth.cli.jobs.rows import OVER, phase_words
from berth.cli.output import moment, print_result, print_table
from berth.cli.tables import Span, Table
from berth.core.explain.explainer import explain_rejection
from berth.core.explain.model import Basis, Choice, Explanation, all_sentences
from berth.core.explain.recovery_text import recovery_words
from berth.core.replay.job_history import Life, Look, Trail
from berth.core.text import pluralize
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.history import explanation_of
from berth.schemas.status import JobStatus

NOT_ASKED: Final = "not-asked"
"""Phase of a job that was not submitted yet at the explained time."""
_ENDS: Final = frozenset({"failed", "cancelled"})
"""Phases of jobs that ended with a reason that is not in the decision."""
_TABLES_MAX: Final = 3
"""Maximum number of choices with a table of other nodes in the text output."""


class LifeRow(msgspec.Struct, frozen=True):
    """A job that had the name."""

    uid: str
    since_ms: int
    ended: str
    """How it ended: succeeded, failed, cancelled or rejected; empty if no end is known."""
    ended_ms: int


class ExplainResult(msgspec.Struct, frozen=True):
    """Result of ``berth explain --json``. ``explanation`` is null before a decision or if it is no longer stored."""

    namespace: str
    name: str
    uid: str
    phase: str
    since_ms: int
    attempt: int
    sentences: list[str]
    explanation: Explanation | None = None
    at_ms: int = 0
    """Explained time in the past, that of the last record before it; 0 for now."""
    lives: list[LifeRow] = []
    """All jobs that had the name up to then, the last one last; empty if the past was not read."""


async def describe(bus: Bus, clock: Clock, status: JobStatus) -> ExplainResult:
    """Explanation of a job as it is now."""
    found = await explanation_of(bus, clock, status)
    lines = _lines(status, found)
    if status.recovery is not None:
        words = recovery_words(status.recovery, status.pods)
        lines.append(f"Recovered since {moment(status.recovery.since_ms)}: {words}.")
    return ExplainResult(
        namespace=status.namespace,
        name=status.name,
        uid=status.uid,
        phase=status.phase,
        since_ms=status.since_ms,
        attempt=status.attempt,
        sentences=lines,
        explanation=found,
    )


def describe_past(namespace: str, name: str, trail: Trail, life: Life, look: Look) -> ExplainResult:
    """Explanation of a job at an earlier time.

    Args:
        namespace: Its namespace.
        name: Its name.
        trail: History of the name.
        life: The job.
        look: Its state at that time.
    """
    status, found, recoveries = look
    lives = [LifeRow(one.uid, one.since_ms, one.ended, one.ended_ms) for one in trail.lives.values()]
    if status is None:  # another job has the name by then, or none
        since = life.ended_ms or life.since_ms
        status = JobStatus(namespace, name, life.uid, life.ended or "cancelled", since, trail.last_ms)
        if life.seen is not None and life.seen.refusal is not None:
            status = msgspec.structs.replace(status, refusal=life.seen.refusal)
    if found is None and status.phase == "rejected" and status.refusal is not None:
        basis = Basis(facts_seq=life.facts_seq, at_ms=status.since_ms)
        found = explain_rejection(namespace, name, life.uid, status.refusal, basis=basis)
    lines = _lines(status, found)
    lines += [f"Recovered since {moment(one.since_ms)}: {one.sentence}." for one in recoveries]
    others = [one for one in lives if one.uid != life.uid]
    if others:
        rows = ", ".join(f"{one.uid} (since {moment(one.since_ms)})" for one in others)
        lines.append(f"Other jobs had this name: uid {rows}; select one with --uid.")
    attempt = status.attempt or (found.attempt if found is not None else 0)
    return ExplainResult(
        namespace,
        name,
        life.uid,
        status.phase,
        status.since_ms,
        attempt,
        lines,
        found,
        at_ms=trail.last_ms,
        lives=lives,
    )


def not_asked(namespace: str, name: str, *, at_ms: int, first_ms: int) -> ExplainResult:
    """Explanation of a job before it was submitted.

    Args:
        namespace: Its namespace.
        name: Its name.
        at_ms: Explained time.
        first_ms: Time of its submission.
    """
    line = f"It was first submitted at {moment(first_ms)}, after that time."
    return ExplainResult(namespace, name, "", NOT_ASKED, first_ms, 0, [line], at_ms=at_ms)


def _lines(status: JobStatus, found: Explanation | None) -> list[str]:
    """Status and explanation as sentences."""
    if found is not None:
        lines = all_sentences(found, is_over=status.phase in OVER, clock=lambda at_ms: _near(at_ms, found.basis.at_ms))
    elif status.ledger_seq:
        lines = ["The decision and its history are no longer stored.", *([status.sentence] if status.sentence else [])]
    else:
        lines = [status.sentence or "Nothing was decided yet."]
    if found is not None and status.phase in _ENDS and status.sentence:
        lines.insert(0, f"Reason: {status.sentence.rstrip('.')}.")
    if status.warning:
        lines.append(f"Warning: {status.warning}.")
    rejected = status.rejection
    if rejected is not None:
        wrong = rejected.refusal
        lines.append(
            f"Another request for this name was rejected at {moment(rejected.at_ms)}:"
            f" {wrong.field} is {wrong.value}, expected {wrong.expected}."
        )
    return lines


def _near(at_ms: int, other_ms: int) -> str:
    """A time in UTC; without its date if that is the date of another time."""
    day, _, time = moment(at_ms).removesuffix(" UTC").partition(" ")
    return f"{time.partition('.')[0]} UTC" if moment(other_ms).startswith(day) else moment(at_ms)


def show(result: ExplainResult, *, with_settings: bool = False) -> None:
    """Print an explanation.

    Args:
        result: The explanation.
        with_settings: Print the settings of the decision, too.
    """
    name = Span(f"{result.namespace}/{result.name}", "bold")
    at = f" as of {moment(result.at_ms)}" if result.at_ms else ""
    if result.phase == NOT_ASKED:
        print_result([name, Span(f" was not submitted yet{at}")])
        print_result(f"  {result.sentences[0]}")
        return
    attempt = f" (attempt {result.attempt})" if result.attempt > 1 else ""
    since = "; it ended at" if result.phase in OVER else " since"
    head = f" {phase_words(result.phase)}{attempt}{since} {moment(result.since_ms)}"
    print_result([name, Span(f"{head}{f'; explained{at}' if at else ''}")])
    for line in result.sentences:
        print_result(f"  {line}")
    if result.explanation is not None:
        _show_candidates(result.explanation)
        basis = result.explanation.basis
        for line in [*_basis_lines(basis), *(_settings_lines(basis) if with_settings else [])]:
            print_result(line)


def _show_candidates(result: Explanation) -> None:
    """The best other nodes for the first pod of each task, as a table."""
    first: dict[str, Choice] = {}
    for choice in result.choices:
        first.setdefault(choice.task, choice)
    for choice in list(first.values())[:_TABLES_MAX]:
        if not choice.candidates:
            continue
        print_result(f"  The best nodes for rank {choice.rank} ({choice.task}):")
        table = Table("NODE", "SCORE", "FREE", "CLASS", "WHY NOT")
        table.add_row(choice.node, str(choice.score), str(choice.free), str(choice.affinity), "it won")
        later = {other.node: other.rank for other in reversed(result.choices) if other.rank > choice.rank}
        for other in choice.candidates:
            then = f"; rank {later[other.node]} takes it" if other.node in later else ""
            why = f"{other.words(choice.score)}{then}"
            table.add_row(other.node, str(other.score), str(other.free), str(other.affinity), why)
        print_table(table)


def _basis_lines(basis: Basis) -> list[str]:
    """When and on what the decision was made."""
    if not basis.ledger_seq:
        lines = [f"Validated at {moment(basis.at_ms)}, when the request was received."]
    elif basis.is_current:
        lines = [
            f"Decided by record {basis.ledger_seq} of the ledger; explained from the state at facts {basis.facts_seq},"
            f" {moment(basis.at_ms)}, epoch {basis.epoch}."
        ]
    else:
        lines = [
            f"Decided at {moment(basis.at_ms)} by record {basis.ledger_seq} of the ledger (round {basis.round} of epoch"
            f" {basis.epoch}), knowing facts up to {basis.facts_seq}."
        ]
    if not basis.ledger_seq:
        return lines
    if basis.nodes:
        held = f"{pluralize(basis.jobs_held, 'job')} held chips" if basis.jobs_held else "no job held chips"
        nodes, chips = pluralize(basis.nodes, "node"), pluralize(basis.chips, "chip")
        lines.append(f"{nodes} with {chips} were known, {basis.chips_free:,} of them free, {held}.")
    return lines


def _settings_lines(basis: Basis) -> list[str]:
    settings = [f"{name} {'on' if value else 'off'}" for name, value in basis.settings.items()]
    if basis.nodes and "queue_policy" in basis.values:
        settings.append(f"queue policy {basis.values['queue_policy']}")
    return [f"Settings: {', '.join(settings)}."] if settings else []
