"""Run of one simulation from the command line: its progress, its recording, and its map over time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from berth.cli.output import CommandError, progress_console
from berth.cli.simulation.course_maps import CourseMaps
from berth.core.simulation.simulator import Simulation, SimulationPlan
from berth.core.simulation.timeline import Timeline
from berth.formats.recordings.recording import Frames
from berth.runtime.recording import replacing
from berth.runtime.release import release
from berth.schemas.recording import BEGINNING, Entry, RecordingHead

_PROGRESS_STEPS: Final = 200
"""Updates of the progress of a run."""


def run_plan(
    plan: SimulationPlan, *, record: Path | None = None, maps: CourseMaps | None
) -> tuple[Simulation, Timeline]:
    """Run one simulation, with progress on a terminal.

    Args:
        plan: The simulation.
        record: File for its history.
        maps: Takes its map over time.

    Raises:
        CommandError: The file cannot be written.
    """
    with ExitStack() as stack:
        advance = stack.enter_context(_progress(plan))
        takers: list[Callable[[Entry], None]] = []
        if record is not None:
            takers.append(stack.enter_context(_written(plan, record)))
        if maps is not None:
            takers.append(stack.enter_context(maps.recording(plan.title, plan.cell)).feed)

        def take(entry: Entry) -> None:
            for taker in takers:
                taker(entry)

        simulation = Simulation(plan, on_entry=take if takers else None)
        return simulation, simulation.run(advance)


@contextmanager
def _written(plan: SimulationPlan, record: Path) -> Iterator[Callable[[Entry], None]]:
    """Write the history of a simulation to a file.

    Raises:
        CommandError: It cannot be written.
    """
    try:
        with replacing(record) as file:
            frames = Frames(head_of(plan))
            file.write(frames.begin())

            def write(entry: Entry) -> None:
                file.write(frames.add(entry))

            yield write
            file.write(frames.end())
    except OSError as error:
        raise CommandError(f"{record} cannot be written: {error.strerror or error}") from error


def head_of(plan: SimulationPlan) -> RecordingHead:
    """Head of the recording of a simulation, which begins with an empty cell."""
    return RecordingHead(
        release=release(),
        cell=plan.cell,
        made_at_ms=0,
        settings=plan.settings,
        start=BEGINNING,
    )


@contextmanager
def _progress(plan: SimulationPlan) -> Iterator[Callable[[int], None] | None]:
    console = progress_console()
    if not console.file.isatty():
        yield None
        return
    from rich.progress import Progress  # noqa: PLC0415  # not needed elsewhere

    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(plan.title or plan.settings.queue_policy, total=len(plan.workload.jobs))
        shown = 0
        step = max(1, len(plan.workload.jobs) // _PROGRESS_STEPS)

        def advance(done: int) -> None:
            nonlocal shown
            if done >= shown + step:
                shown = done
                progress.update(task, completed=done)

        yield advance
