"""``berth what-if``: results of the jobs of a recording with other settings or other numbers of nodes."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.interrupts import compute
from berth.cli.output import WRONG_USE, CommandError, listed, near_names, working
from berth.cli.simulation.course_maps import CourseMaps
from berth.cli.simulation.decision_settings import settings_text, settings_with
from berth.cli.simulation.log_workload import recorded_course, workload_of
from berth.cli.simulation.pictures import may_draw
from berth.cli.simulation.plan_run import run_plan
from berth.cli.simulation.queue_changes import with_queues
from berth.cli.simulation.results import give, results_of
from berth.core.simulation.cluster_changes import (
    UnknownNodeError,
    last_names,
    model_of,
    nodes_of,
    with_nodes,
    without_nodes,
)
from berth.core.simulation.durations import percentile
from berth.core.simulation.planned_cluster import TimedFact
from berth.core.simulation.recorded_workload import LoggedWorkload
from berth.core.simulation.simulator import SimulationPlan
from berth.core.simulation.timeline import Timeline
from berth.core.text import pluralize
from berth.schemas.nodes import NodeDescription

CONTROL: Final = "simulated as it was"
_COURSES: Final = 3
_ADDED_MAX: Final = 100_000
_COUNT: Final = re.compile(r"([+-])(\d{1,18})(?::(.+))?", re.ASCII)


@Parameter(name="*")
@dataclass(frozen=True)
class Change:
    """Differences from the recording.

    Attributes:
        set: A setting of decisions, such as queue_policy=easy; may be given several times.
        nodes: +16 adds nodes of the most frequent kind, +16:module910bx8 such of a product, +16:a2-7 such like a node,
            -8 removes the last eight by name; or names of nodes to remove, separated by commas.
        queue: A field of a queue, such as research.capability=128; may be given several times.
    """

    set: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = ()
    nodes: Annotated[str, Parameter(show_default=False, allow_leading_hyphen=True)] = ""
    queue: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = ()


@Parameter(name="*")
@dataclass(frozen=True)
class Given:
    """Where results are written.

    Attributes:
        out: Folder for report.html, map.html, pictures, results.json and results.md.
        json: Print JSON instead of text.
    """

    out: Annotated[Path | None, Parameter(show_default=False)] = None
    json: Annotated[bool, Parameter(negative=())] = False


def what_if(file: Path, *, change: Change | None = None, given: Given | None = None) -> int:
    """Compare three courses of events: as recorded, simulated without the change, and simulated with it.

    Args:
        file: A recording, made by: berth record.
        change: Differences from the recording.
        given: Where results are written.
    """
    wishes, places = change or Change(), given or Given()

    async def work() -> None:
        if not wishes.set and not wishes.nodes and not wishes.queue:
            raise CommandError(
                "name a change: --set key=value, --nodes +16, --nodes +16:PRODUCT, --nodes -8, --nodes NAMES or --queue"
                " NAME.FIELD=VALUE",
                code=WRONG_USE,
            )
        if places.out is not None:
            may_draw(places.out)
        with working(f"reading {file.name}"):
            logged = workload_of(file)
        settings = settings_with(logged.settings, wishes.set)
        if wishes.queue and not settings.queues:
            raise CommandError("--queue: queues do nothing in this cell, expected --set queues=2 too", code=WRONG_USE)
        facts = with_queues(_changed(logged, wishes.nodes), wishes.queue, cell=logged.cell)
        result = settings_text(logged.settings)
        words = {"recording": file.name, "jobs": str(len(logged.workload.jobs)), "nodes": _counted(logged.facts)}
        control = SimulationPlan(
            workload=logged.workload,
            facts=logged.facts,
            settings=logged.settings,
            more_rules=logged.more_rules,
            title=CONTROL,
            words=words | result,
            cell=logged.cell,
        )
        changed = msgspec.structs.replace(
            control,
            facts=facts,
            settings=settings,
            title="; ".join([*wishes.set, *([f"nodes {wishes.nodes}"] if wishes.nodes else []), *wishes.queue]),
            words=words | {"nodes": _counted(facts)} | settings_text(settings),
        )
        with working(f"reading {file.name}"):
            recorded = recorded_course(file, words | result)
        maps = None
        if places.out is not None:
            maps = CourseMaps(_COURSES)
            maps.add_recorded(file, recorded.title)
        courses = [recorded, run_plan(control, maps=maps)[1]]
        simulation, timeline = run_plan(changed, maps=maps)
        courses.append(timeline)
        found = results_of(
            courses,
            source=file.name,
            cluster=f"cell {logged.cell}",
            notes=[*_added(logged, wishes.nodes), *logged.workload.notes, trust(courses[0], courses[1])],
            turned_away=simulation.rejected,
            judged_from=1,
            resolution_ms=deviation_ms(courses[0], courses[1], 95),
        )
        give(found, courses, places.out, maps, as_json=places.json)

    return compute(work)


def trust(recorded: Timeline, control: Timeline) -> str:
    """Sentence on how closely the simulation without the change follows the recording."""
    apart = _apart_ms(recorded, control)
    if not apart:
        return f"no job was placed both in the record and where it was {CONTROL}: differences are not significant"
    most_ms = percentile(apart, 95)
    return (
        f"{CONTROL}, {pluralize(len(apart), 'job')} placed as in the record, half of them within {percentile(apart, 50) / 1000:g} s"
        f" of the recorded moment, 95 % within {most_ms / 1000:g} s"
        + (": smaller differences are not significant" if most_ms else "")
    )


def deviation_ms(recorded: Timeline, control: Timeline, percent: int) -> int:
    """How far the placement of so many jobs is from the recorded moment at most; 0 without such jobs."""
    apart = _apart_ms(recorded, control)
    return percentile(apart, percent) if apart else 0


def _apart_ms(recorded: Timeline, control: Timeline) -> list[int]:
    """Time between the recorded and the simulated placement of each job that has both, ascending."""
    placed = {
        (job.namespace, job.name): job.placed_ms - recorded.begin_ms for job in recorded.jobs if job.placed_ms >= 0
    }
    return sorted(
        abs(job.placed_ms - control.begin_ms - placed[job.namespace, job.name])
        for job in control.jobs
        if job.placed_ms >= 0 and (job.namespace, job.name) in placed
    )


def _counted(facts: list[TimedFact]) -> str:
    nodes = nodes_of(facts)
    return f"{len(nodes):,}, {pluralize(sum(node.whole_chips for node in nodes), 'chip')}"


def _changed(logged: LoggedWorkload, nodes: str) -> list[TimedFact]:
    """Facts with other numbers of nodes.

    Raises:
        CommandError: The text is invalid, or a node is unknown.
    """
    if not nodes:
        return logged.facts
    match = _COUNT.fullmatch(nodes)
    count = int(match[2]) if match is not None else 0
    known = [node.name for node in nodes_of(logged.facts)]
    if match is None:
        return _without(logged, [name.strip() for name in nodes.split(",") if name.strip()], known)
    if not 0 < count <= (_ADDED_MAX if match[1] == "+" else len(known) - 1):
        most = _ADDED_MAX if match[1] == "+" else f"{len(known) - 1}: the recording has {pluralize(len(known), 'node')}"
        raise CommandError(f"--nodes is {nodes}, expected a number from 1 to {most}", code=WRONG_USE)
    if match[1] == "+":
        return with_nodes(logged.facts, count, cell=logged.cell, like=_model(logged, match[3] or "").name)
    if match[3]:
        raise CommandError(f"--nodes is {nodes}, expected -{count}, or names of nodes to remove", code=WRONG_USE)
    return without_nodes(logged.facts, last_names(logged.facts, count))


def _model(logged: LoggedWorkload, like: str) -> NodeDescription:
    """The node of which copies are added.

    Raises:
        CommandError: There is no such node and no such product.
    """
    nodes = nodes_of(logged.facts)
    try:
        return model_of(nodes, like)
    except UnknownNodeError as error:
        known = {node.product for node in nodes if node.product} | {node.name for node in nodes}
        near = listed(near_names(like, known) or sorted({node.product for node in nodes}))
        raise CommandError(
            f"--nodes: no node and no product is named {like}, expected such as {near}", code=WRONG_USE
        ) from error


def _added(logged: LoggedWorkload, nodes: str) -> list[str]:
    """A sentence about the nodes that are added, if some are."""
    match = _COUNT.fullmatch(nodes)
    if match is None or match[1] != "+":
        return []
    count, model = int(match[2]), _model(logged, match[3] or "")
    chips = pluralize(count * model.whole_chips, "chip")
    return [f"added: {pluralize(count, 'node')} of {model.product or 'unknown product'} like {model.name}, {chips}"]


def _without(logged: LoggedWorkload, names: list[str], known: list[str]) -> list[TimedFact]:
    if not set(known) - set(names):
        raise CommandError(
            f"--nodes removes all {len(known)} nodes of the recording, expected at least one to remain", code=WRONG_USE
        )
    try:
        return without_nodes(logged.facts, names)
    except UnknownNodeError as error:
        near = listed(near_names(error.node, known) or known)
        raise CommandError(f"--nodes: {error}, expected +16, -8, or names such as {near}", code=WRONG_USE) from error
