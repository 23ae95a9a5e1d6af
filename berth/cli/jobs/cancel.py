"""``berth cancel``: cancel a job."""

from typing import Final

from berth.cli.cell import Common, connected, run
from berth.cli.jobs.finding import Namespace, find_job
from berth.cli.jobs.rows import OVER, phase_words, row_of
from berth.cli.jobs.watching import Watch
from berth.cli.output import CommandError, emit, print_result
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel
from berth.schemas.status import JobStatus

_CANCEL_S: Final = 10.0
_ENDING: Final = "is cancelled; its pods are being deleted"


def cancel(job: str, *, namespace: Namespace = "default", reason: str = "", common: Common | None = None) -> int:
    """Cancel a job, whether it waits or runs.

    Args:
        job: Its name, or namespace/name.
        namespace: Namespace of a name without one.
        reason: The reason; it is stored with the job.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        async with connected(options) as bus:
            status = await find_job(bus, job, namespace)
            label = f"{status.namespace}/{status.name}"
            if status.phase in OVER:
                raise CommandError(f"{label} cannot be cancelled: it {phase_words(status.phase)} already")
            wish = JobCancel(status.namespace, status.name, status.uid, reason, SystemClock().now_ms())
            async with Watch(bus, [(status.namespace, status.name)]) as watch:
                await bus.publish(bus.subjects.intake_cancel(status.namespace, status.name), encode(wish))
                key = (status.namespace, status.name)
                result = await watch.until(lambda: _stopped(watch, key, status.uid), timeout_s=_CANCEL_S)
            if result is None:
                raise CommandError(f"{label}: no answer from the dispatcher within {_CANCEL_S:g} s; is one running?")
        if options.json:
            emit(row_of(result))
        else:
            why = f": {result.sentence}" if result.sentence else ""
            words = f"{phase_words(result.phase)}{why}"
            print_result(f"{label} {_ENDING if result.phase == 'ending' else words}")

    return run(work)


def _stopped(watch: Watch, key: tuple[str, str], uid: str) -> JobStatus | None:
    now = watch.statuses.get(key)
    ends = {*OVER, "ending"}
    return now if now is not None and now.uid == uid and now.phase in ends else None
