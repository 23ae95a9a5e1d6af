"""Small simulations: jobs and clusters in a few words, and what became of them."""

from collections.abc import Sequence

from berth.core.simulation.baselines import Baseline
from berth.core.simulation.failures import BreakableNode, FailureModel
from berth.core.simulation.fault_plan import FaultPlan, Strategy
from berth.core.simulation.planned_cluster import TimedFact, facts_of
from berth.core.simulation.simulator import Simulation, SimulationPlan
from berth.core.simulation.timeline import JobTimeline, Timeline
from berth.formats.clusters.cluster_text import read_cluster
from berth.formats.traces.jobs import LARGE_PODS_MIN
from berth.formats.traces.reader import read_trace
from berth.schemas.envelope import encode
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.recording import Entry
from berth.schemas.subjects import Subjects
from berth.schemas.workload import PlannedJob, Workload

CELL = "simulation"
SECOND_MS = 1000


def planned(
    name: str, at_s: int, run_s: int, chips: int, *, pods: int = 1, switch: bool = False, **fields: int
) -> PlannedJob:
    """A job of ``pods`` pods of ``chips`` chips each; ``priority``, ``declared_s`` and ``cancel_s`` by keyword."""
    schema = "large-model-schema" if pods >= LARGE_PODS_MIN else "normal-schema"
    request = JobRequest(
        namespace="team",
        name=name,
        uid="",
        resource="huawei.com/Ascend910",
        tasks=[Task("worker", pods, chips)],
        labels={"tor-affinity": schema} if switch else {},
        node_selector={"accelerator-type": "module-910b-8"},
        priority=fields.get("priority", 0),
        run_ms=fields.get("declared_s", 0) * SECOND_MS,
    )
    return PlannedJob(
        request=request,
        at_ms=at_s * SECOND_MS,
        run_ms=run_s * SECOND_MS,
        cancel_ms=fields.get("cancel_s", 0) * SECOND_MS,
    )


def cluster_facts(words: str) -> list[TimedFact]:
    """Facts of a cluster in words, all at the start."""
    facts = facts_of(read_cluster(words), subjects=Subjects(CELL), at_ms=0)
    return [TimedFact(0, subject, encode(message)) for subject, message in facts]


def a_plan(
    *jobs: PlannedJob,
    cluster: str = "nodes=1",
    settings: Settings | None = None,
    baseline: Baseline | None = None,
    seed: int = 0,
    later: Sequence[TimedFact] = (),
    faults: FaultPlan | None = None,
) -> SimulationPlan:
    """A plan of jobs in the order of arrival."""
    return SimulationPlan(
        workload=Workload("test", sorted(jobs, key=lambda job: job.at_ms)),
        facts=[*cluster_facts(cluster), *later],
        settings=settings or Settings(),
        cell=CELL,
        baseline=baseline,
        seed=seed,
        faults=faults,
    )


def run_of(plan: SimulationPlan) -> tuple[Simulation, Timeline, list[Entry]]:
    """A plan carried out: the simulation at its end, the course, and the history as entries."""
    entries: list[Entry] = []
    simulation = Simulation(plan, on_entry=entries.append)
    return simulation, simulation.run(), entries


def jobs_of(timeline: Timeline) -> dict[str, JobTimeline]:
    """Jobs by name."""
    return {job.name: job for job in timeline.jobs}


def times_s(timeline: Timeline) -> dict[str, tuple[float, float]]:
    """When each job was placed and ended, in seconds; -1 for never."""

    def seconds(at_ms: int) -> float:
        return at_ms / SECOND_MS if at_ms >= 0 else -1

    return {job.name: (seconds(job.placed_ms), seconds(job.ended_ms)) for job in timeline.jobs}


def from_trace(
    lines: Sequence[str], cluster: str, *, compress: float = 1.0, settings: Settings | None = None
) -> SimulationPlan:
    """A plan of a trace."""
    return SimulationPlan(
        workload=read_trace(lines, compress=compress),
        facts=cluster_facts(cluster),
        settings=settings or Settings(),
        cell=CELL,
    )


def fault_plan(cluster: str, *, strategy: Strategy = "pods", **numbers: float) -> FaultPlan:
    """Failures of a cluster in words; numbers of the model and of the plan by name."""
    nodes = [BreakableNode(node.name, node.chips, node.leaf) for node in read_cluster(cluster).nodes]
    of_model = {name: value for name, value in numbers.items() if name in FailureModel.__struct_fields__}
    of_plan = {name: value for name, value in numbers.items() if name not in of_model}
    model = FailureModel(**of_model)  # type: ignore[arg-type]  # numbers by name
    return FaultPlan(model=model, nodes=nodes, strategy=strategy, **of_plan)  # type: ignore[arg-type]  # as above
