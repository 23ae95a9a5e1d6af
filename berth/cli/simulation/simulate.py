"""``berth simulate``: a trace of jobs on a cluster that does not exist yet, under one or several queue policies."""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from cyclopts import Parameter

from berth.cli.interrupts import compute
from berth.cli.output import WRONG_USE, CommandError, working
from berth.cli.queue_files import read_file
from berth.cli.recordings.record import may_write
from berth.cli.simulation.cluster_input import cluster_of
from berth.cli.simulation.course_maps import CourseMaps
from berth.cli.simulation.decision_settings import settings_text, settings_with
from berth.cli.simulation.fault_options import check_reserves, faults_of, faults_text
from berth.cli.simulation.log_workload import is_recording, workload_of
from berth.cli.simulation.pictures import may_draw
from berth.cli.simulation.plan_run import run_plan
from berth.cli.simulation.rejections import code_of, explained, leaf_note
from berth.cli.simulation.results import Results, give, results_of
from berth.cli.simulation.trace_input import declared, declared_words, product_of, read_workload
from berth.core.cluster.node_packing import RepeatedNodeError
from berth.core.requests.gangs import ORDERED
from berth.core.simulation.baselines import BASELINES, Baseline
from berth.core.simulation.fault_plan import FaultPlan, Strategy
from berth.core.simulation.planned_cluster import TimedFact, facts_of
from berth.core.simulation.simulator import RejectedJob, SimulationPlan, title_of
from berth.core.simulation.timeline import Timeline
from berth.core.simulation.training import NoProgressError
from berth.core.text import pluralize
from berth.formats.clusters.cluster_text import (
    PRODUCT,
    ClusterTextError,
    default_cluster,
    offered_load,
    read_cluster,
)
from berth.formats.traces.jobs import Affinity
from berth.schemas.envelope import encode
from berth.schemas.ledger import Settings
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.subjects import Subjects
from berth.schemas.workload import ClusterPlan, Workload

Policy = Literal["fifo", "skip", "easy", "conservative"]
CELL: Final = "simulation"
_SEED_MAX: Final = (1 << 63) - 1


@Parameter(name="*")
@dataclass(frozen=True)
class Wanted:
    """What to simulate.

    Attributes:
        policy: Queue policy; several give a column each. Default: that of --set, or skip.
        baselines: Also place on random nodes, by first fit, and on the emptiest nodes, under the first policy.
        compress: Divide arrival times by this.
        declare: Declared run time: exact, none, or a factor such as 1.5.
        affinity: Jobs that request switch affinity: all, those with two or more pods (gangs), none.
        set: A setting of decisions, such as reserve_chips=32; may be given several times.
        seed: Seed of the random nodes of --baselines.
        faults: Simulate failures: pairs such as mtbf=154d,repair=4h,seed=1. docs/simulate.md lists all keys.
        recovery: What leaves first after a failure: the pods that it concerns, or the whole job; several give a column
            each. Default: pods.
        reserve_nodes: Nodes of a SuperPoD that stay free as long as jobs fit elsewhere; several give a column each.
        queues: File of queues, which limit and order the jobs that name them; - for stdin.
        expect: Ask for the expected start of one of so many jobs that wait, and say how near the answers were.
    """

    policy: Annotated[tuple[Policy, ...], Parameter(negative=(), show_default=False)] = ()
    baselines: Annotated[bool, Parameter(negative=())] = False
    compress: float = 1.0
    declare: str = "none"
    affinity: Affinity = "all"
    set: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = ()
    seed: int = 0
    faults: Annotated[str, Parameter(show_default=False)] = ""
    recovery: Annotated[tuple[Strategy, ...], Parameter(negative=(), show_default=False)] = ()
    reserve_nodes: Annotated[tuple[int, ...], Parameter(negative=(), show_default=False)] = ()
    queues: Annotated[str, Parameter(show_default=False)] = ""
    expect: Annotated[int, Parameter(show_default=False)] = 0


@Parameter(name="*")
@dataclass(frozen=True)
class Given:
    """Where results are written.

    Attributes:
        out: Folder for report.html, map.html, pictures, results.json and results.md.
        record: File for the history of the first column as a recording, for: berth replay.
        json: Print JSON instead of text.
    """

    out: Annotated[Path | None, Parameter(show_default=False)] = None
    record: Annotated[Path | None, Parameter(show_default=False)] = None
    json: Annotated[bool, Parameter(negative=())] = False


def simulate(*, trace: Path, cluster: str = "", wanted: Wanted | None = None, given: Given | None = None) -> int:
    """Simulate a trace of jobs on a cluster, with the scheduler core of a real cell.

    Args:
        trace: CSV file of jobs, plain or gzipped, or a recording of Berth.
        cluster: Topology file, or words such as nodes=302,leaf=16,product=module910bx8. Default: one that fits the
            trace.
        wanted: What to simulate.
        given: Where results are written.
    """
    wishes, places = wanted or Wanted(), given or Given()

    async def work() -> int:
        if places.record is not None:
            may_write(places.record)
        if places.out is not None:
            may_draw(places.out)
        with working(f"reading {trace.name}"):
            setup = prepare(trace, cluster, wishes)
        maps = CourseMaps(len(_columns(setup, wishes))) if places.out is not None else None
        found, courses = simulated(setup, wishes, record=places.record, maps=maps)
        give(found, courses, places.out, maps, as_json=places.json)
        return code_of(found)

    return compute(work)


class Setup(msgspec.Struct, frozen=True):
    """Inputs that all columns share."""

    source: str
    workload: Workload
    plan: ClusterPlan
    facts: list[TimedFact]
    settings: Settings
    words: dict[str, str]
    faults: FaultPlan | None = None
    """Failures; None: nothing breaks."""


def prepare(trace: Path, cluster: str, wanted: Wanted) -> Setup:
    """Read the trace and the cluster.

    Raises:
        CommandError: One of them, or a setting, is invalid.
    """
    defaults = Settings(queues=ORDERED) if wanted.queues else Settings()
    settings = settings_with(defaults, wanted.set)
    queues = _queue_facts(wanted.queues) if wanted.queues else []
    check_reserves(wanted.reserve_nodes, settings)
    if not 0 <= wanted.seed <= _SEED_MAX:
        raise CommandError(f"--seed is {wanted.seed}, expected a whole number from 0 to {_SEED_MAX}", code=WRONG_USE)
    if wanted.expect < 0:
        raise CommandError(f"--expect is {wanted.expect}, expected a whole number from 0, such as 20", code=WRONG_USE)
    if not 0 < wanted.compress < math.inf:
        raise CommandError(f"--compress is {wanted.compress:g}, expected a number above 0 such as 12", code=WRONG_USE)
    declare = declared(wanted.declare)
    is_log = is_recording(trace)
    if is_log:
        _check_no_trace_options(trace, wanted)
    plan = cluster_of(cluster) if cluster else None
    product = product_of(plan) if plan is not None else PRODUCT
    workload = (
        workload_of(trace).workload
        if is_log
        else read_workload(trace, product=product, compress=wanted.compress, declare=declare, affinity=wanted.affinity)
    )
    why = "as asked"
    if plan is None:
        try:
            plan = read_cluster(default_cluster(workload))
        except ClusterTextError as error:
            raise CommandError(f"no cluster fits {trace}: {error}; name one with --cluster", code=WRONG_USE) from error
        why = "fits the trace; --cluster names another"
    facts = [*_facts(plan), *queues]
    faults = _faults(wanted, plan, settings)
    chips = sum(node.whole_chips for node in plan.nodes)
    words = {"recording" if is_log else "trace": f"{trace.name}, {pluralize(len(workload.jobs), 'job')}"}
    if not is_log:
        words |= {
            "arrivals divided by": f"{wanted.compress:g}",
            "declared run times": declared_words(workload, wanted.declare, wanted.policy or (settings.queue_policy,)),
            "switch affinity": wanted.affinity,
        }
    words |= {
        "cluster": f"{plan.name} ({why})",
        "nodes": f"{len(plan.nodes):,}, {pluralize(chips, 'chip')}",
        "offered load": f"{offered_load(workload, plan.nodes):.1%}".replace("%", " %"),
    }
    if faults is not None:
        words |= faults_text(faults)
    return Setup(trace.name, workload, plan, facts, settings, words, faults)


def simulated(
    setup: Setup, wanted: Wanted, *, record: Path | None = None, maps: CourseMaps | None = None
) -> tuple[Results, list[Timeline]]:
    """Run all columns, one after another.

    Args:
        setup: Inputs.
        wanted: What to simulate.
        record: File for the history of the first column.
        maps: Takes the map of each column over time.

    Raises:
        CommandError: The recording cannot be written, or no job can be placed for want of leaf switches.
    """
    courses: list[Timeline] = []
    turned_away: list[RejectedJob] = []
    notes = [*setup.workload.notes, *setup.plan.notes]
    for number, column in enumerate(_columns(setup, wanted)):
        words = {**setup.words, **settings_text(column.settings)}
        words["nodes chosen"] = f"{column.baseline}" if column.baseline else "Berth"
        if column.baseline is not None:
            words["seed"] = str(wanted.seed)
        if column.faults is not None and column.faults.has_failures:
            words["recovery"] = column.faults.strategy
        plan = SimulationPlan(
            workload=setup.workload,
            facts=setup.facts,
            settings=column.settings,
            title=column.title,
            words=words,
            cell=CELL,
            baseline=column.baseline,
            seed=wanted.seed,
            faults=column.faults,
            expect_every=wanted.expect,
        )
        try:
            simulation, timeline = run_plan(plan, record=record if not number else None, maps=maps)
        except NoProgressError as error:
            raise CommandError(
                f"--faults: {error}; expected a longer mtbf or a shorter checkpoint", code=WRONG_USE
            ) from error
        courses.append(timeline)
        if not number:
            turned_away = explained(simulation.rejected, setup.workload)
            note = leaf_note(
                turned_away,
                len(setup.workload.jobs),
                cluster=setup.plan.name,
                affinity=setup.words.get("switch affinity", ""),
            )
            notes += [note] * bool(note)
    found = results_of(courses, source=setup.source, cluster=setup.plan.name, notes=notes, turned_away=turned_away)
    return found, courses


class _Column(NamedTuple):
    """What is simulated for one column."""

    title: str
    settings: Settings
    baseline: Baseline | None
    faults: FaultPlan | None


def _columns(setup: Setup, wanted: Wanted) -> list[_Column]:
    """Columns by policy, then by nodes in reserve, then by what is done about failures; baselines come last."""
    policies = list(dict.fromkeys(wanted.policy or (setup.settings.queue_policy,)))
    reserves: list[int | None] = list(dict.fromkeys(wanted.reserve_nodes)) or [None]
    plans: list[FaultPlan | None] = [None]
    if setup.faults is not None:
        strategies = dict.fromkeys(wanted.recovery or (setup.faults.strategy,))
        plans = [msgspec.structs.replace(setup.faults, strategy=strategy) for strategy in strategies]
    columns: list[_Column] = []
    for policy, reserve, faults in itertools.product(policies, reserves, plans):
        settings = msgspec.structs.replace(setup.settings, queue_policy=policy)
        parts = [title_of(settings, None)]
        if reserve is not None:
            settings = msgspec.structs.replace(settings, reserve_nodes=reserve)
            parts.append(f"reserve {reserve}")
        if faults is not None and faults.has_failures:
            parts.append(f"recovery by {faults.strategy}")
        columns.append(_Column(", ".join(parts), settings, None, faults))
    if wanted.baselines:
        settings = msgspec.structs.replace(setup.settings, queue_policy=policies[0])
        columns += [_Column(title_of(settings, baseline), settings, baseline, None) for baseline in BASELINES]
    return columns


def _check_no_trace_options(recording: Path, wanted: Wanted) -> None:
    """Reject options of traces for a recording, which has arrival times and requests of its own.

    Raises:
        CommandError: Such an option is given.
    """
    for name in ("compress", "declare", "affinity"):
        value = getattr(wanted, name)
        if value != getattr(Wanted, name):
            raise CommandError(
                f"--{name} is {value}: expected a trace for it, and {recording} is a recording, whose jobs are taken as they"
                " were",
                code=WRONG_USE,
            )


def _faults(wanted: Wanted, plan: ClusterPlan, settings: Settings) -> FaultPlan | None:
    """Failures that are asked for; where jobs may end for others, what that costs.

    Raises:
        CommandError: They are invalid, or options contradict one another.
    """
    if not wanted.faults:
        if wanted.recovery:
            raise CommandError(f"--recovery is {wanted.recovery[0]}, expected --faults beside it", code=WRONG_USE)
        if not settings.preempt:
            return None
    if wanted.baselines:
        why = "--faults" if wanted.faults else "preempt"
        raise CommandError(f"--baselines is given, expected it without {why}", code=WRONG_USE)
    return faults_of(wanted.faults, plan) if wanted.faults else FaultPlan()


def _facts(plan: ClusterPlan) -> list[TimedFact]:
    try:
        facts = facts_of(plan, subjects=Subjects(CELL), at_ms=0)
    except RepeatedNodeError as error:
        raise CommandError(f"cluster {plan.name}: {error}", code=WRONG_USE) from error
    return [TimedFact(0, subject, encode(message)) for subject, message in facts]


def _queue_facts(file: str) -> list[TimedFact]:
    """Facts of the queues of a file.

    Raises:
        CommandError: It cannot be read, or a queue in it is wrong.
    """
    found = read_file(file)
    if found.faults:
        raise CommandError("--queues: " + "; ".join(found.faults), code=WRONG_USE)
    subjects, tree = Subjects(CELL), found.tree
    declared = [tree.queues[name] for name in tree.queues if name in tree.declared]
    return [TimedFact(0, subjects.fact_queue(one.name), encode(QueueSeen(one))) for one in declared]


__all__ = ["Given", "Setup", "Wanted", "prepare", "simulate", "simulated"]
