"""``berth hold``, ``berth release`` and ``berth priority``: change jobs that wait."""

from typing import Annotated, Final

from cyclopts import Parameter

from berth.cli.cell import Common, caller, connected, run
from berth.cli.jobs.finding import Namespace, find_job
from berth.cli.jobs.rows import OVER, phase_words, row_of
from berth.cli.jobs.watching import Watch
from berth.cli.output import WRONG_USE, CommandError, emit, print_result
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import encode
from berth.schemas.intake import PRIORITY_MAX, JobSteer
from berth.schemas.status import JobStatus

_ANSWER_S: Final = 10.0


def hold(job: str, *, namespace: Namespace = "default", reason: str = "", common: Common | None = None) -> int:
    """Hold a job that waits: it is not started until ``berth release``, and no job waits behind it.

    Args:
        job: Its name, or namespace/name.
        namespace: Namespace of a name without one.
        reason: The reason; it is stored with the job and shown beside it.
        common: Cell and form of the output.
    """
    return _change(job, namespace, common, held=True, reason=reason)


def release(job: str, *, namespace: Namespace = "default", common: Common | None = None) -> int:
    """Release a job that is held: it has its place in the queue again, as if nobody had held it.

    Args:
        job: Its name, or namespace/name.
        namespace: Namespace of a name without one.
        common: Cell and form of the output.
    """
    return _change(job, namespace, common, held=False)


def priority(
    job: str,
    value: Annotated[int, Parameter(allow_leading_hyphen=True)],
    *,
    namespace: Namespace = "default",
    common: Common | None = None,
) -> int:
    """Give a job that waits another priority than that of its request.

    Args:
        job: Its name, or namespace/name.
        value: The priority; jobs of a higher one are tried first.
        namespace: Namespace of a name without one.
        common: Cell and form of the output.
    """
    return _change(job, namespace, common, priority=value)


def _change(
    job: str,
    namespace: str,
    common: Common | None,
    *,
    held: bool | None = None,
    priority: int | None = None,
    reason: str = "",
) -> int:
    options = common or Common()

    async def work() -> None:
        if priority is not None and abs(priority) > PRIORITY_MAX:
            bounds = f"{-PRIORITY_MAX:,} to {PRIORITY_MAX:,}"
            raise CommandError(f"the priority is {priority:,}, expected {bounds}", code=WRONG_USE)
        async with connected(options) as bus:
            status = await find_job(bus, job, namespace)
            key, label = (status.namespace, status.name), f"{status.namespace}/{status.name}"
            _check_changeable(status, label, held=held)
            wish = JobSteer(
                *key,
                status.uid,
                held=held,
                priority=priority,
                by=caller(),
                reason=reason,
                created_at_ms=SystemClock().now_ms(),
            )
            async with Watch(bus, [key]) as watch:
                sequence = await bus.publish(bus.subjects.intake_steer(*key), encode(wish))
                result = await watch.until(lambda: _answer(watch, key, status.uid, sequence), timeout_s=_ANSWER_S)
            if result is None:
                raise CommandError(f"{label}: no answer from the dispatcher within {_ANSWER_S:g} s; is one running?")
        if result.phase != "waiting" and held is not False:
            raise CommandError(f"{label} was not changed: it {phase_words(result.phase)} meanwhile")
        if options.json:
            emit(row_of(result))
        elif held:
            print_result(f"{label} is {result.sentence}")
        elif held is False:
            print_result(f"{label} is released")
        else:
            print_result(f"{label} has priority {result.priority}")

    return run(work)


def _check_changeable(status: JobStatus, label: str, *, held: bool | None) -> None:
    """Check that a change can count.

    Raises:
        CommandError: The job is over, or its state does not permit the change.
    """
    if status.phase in OVER:
        raise CommandError(f"{label} cannot be changed: it {phase_words(status.phase)} already")
    if held is False:
        if not status.is_held:
            raise CommandError(f"{label} is not held")
    elif status.phase != "waiting":
        what = "be held" if held else "get another priority"
        raise CommandError(f"{label} cannot {what}: it {phase_words(status.phase)}; only a job that waits can")


def _answer(watch: Watch, key: tuple[str, str], uid: str, sequence: int) -> JobStatus | None:
    """The first status that the verdict led to; or one that shows that there will be no verdict."""
    now = watch.statuses.get(key)
    verdict = next((one for one in watch.verdicts[key] if one.uid == uid and one.intake_seq >= sequence), None)
    if now is None or now.uid != uid or now.phase != "waiting":
        return now if now is not None and now.uid == uid else None
    if verdict is None or verdict.priority not in {None, now.priority}:
        return None
    if verdict.hold is None:
        return None if now.is_held else now
    return now if now.sentence == verdict.hold.words else None
