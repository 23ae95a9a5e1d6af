"""Pods without chips, alone and in jobs with chips: where they go, what they leave to others, and whom they change."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_nodes
from berth.core.state.ledger import pods_of
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round, Settings, Verdict
from berth.schemas.nodes import NodeDescription
from berth.schemas.workload import PlannedJob
from tests.property.test_backfill import promises
from tests.support.cells import a_job, a_node
from tests.support.simulations import a_plan, jobs_of, planned, run_of
from tests.unit.core.scheduling.test_scheduler import Seat

CPUS = (0, 500, 2_000, 5_000)
POLICIES = ("fifo", "skip", "easy", "conservative")


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeDescription]:
    """Nodes with and without chips in SuperPoDs, below leaves and in neither, names in random order."""
    count = draw(st.integers(2, 9))
    names = draw(st.permutations([f"n{number}" for number in range(count)]))
    nodes = []
    for name in names:
        kind, number = draw(st.sampled_from(("superpod", "leaf", ""))), draw(st.integers(0, 1))
        place: dict[str, object] = {kind: str(number)} if kind else {}
        bare: dict[str, object] = {} if draw(st.booleans()) else {"chips": 0, "allocatable": 0, "resource": ""}
        cpu, memory = draw(st.sampled_from((0, 3_000, 8_000, 20_000))), draw(st.sampled_from((0, 10_000, 40_000)))
        node = a_node(name, cpu_milli=cpu, memory_mib=memory)
        nodes.append(msgspec.structs.replace(node, **place, **bare))
    return nodes


TASKS = st.lists(
    st.builds(
        Task,
        name=st.just("t"),
        replicas=st.integers(1, 3),
        chips=st.sampled_from((0, 0, 1, 4, 8)),
        cpu_milli=st.sampled_from(CPUS),
        memory_mib=st.sampled_from((0, 3_000, 20_000)),
    ),
    min_size=1,
    max_size=4,
)


def job(number: int, tasks: Sequence[Task], **changes: object) -> JobRequest:
    named = [Task(f"t{index}", *(getattr(task, field) for field in ("replicas", "chips", "cpu_milli", "memory_mib")))
             for index, task in enumerate(tasks)]  # fmt: skip
    return a_job(f"j{number}", tasks=named, **changes)  # type: ignore[arg-type]  # fields of a request


def seat_of(nodes: Sequence[NodeDescription], **fields: object) -> Seat:
    seat = Seat(**fields)
    by_name = {node.name: node for node in nodes}
    for domain, names in domains(nodes).items():
        seat.fact(f"node.{domain}", pack_nodes(domain, [by_name[name] for name in names], at_ms=1))
    return seat


class Book:
    """What is free, kept apart from the product's own columns."""

    def __init__(self, nodes: Sequence[NodeDescription]) -> None:
        self.given = {node.name: (node.cpu_milli, node.memory_mib) for node in nodes}
        self.group = {
            node.name: f"s{node.superpod}" if node.superpod else f"l{node.leaf}" if node.leaf else "" for node in nodes
        }
        self.used = {node.name: [0, 0] for node in nodes}
        self.bare = {node.name: [0, 0] for node in nodes}

    def fits(self, name: str, task: Task) -> bool:
        asks = (task.cpu_milli, task.memory_mib)
        return all(not ask or self.used[name][at] + ask <= self.given[name][at] for at, ask in enumerate(asks))

    def score(self, name: str, task: Task) -> int:
        total = 0
        for at, (ask, least) in enumerate(((task.cpu_milli, 100), (task.memory_mib, 200))):
            given = self.given[name][at]
            left = given - self.used[name][at] - self.bare[name][at] * least - (ask or least)
            total += 10_000 * max(left, 0) // given if given > 0 else 0
        return total // 2

    def take(self, name: str, task: Task) -> None:
        for at, ask in enumerate((task.cpu_milli, task.memory_mib)):
            self.used[name][at] += ask
            self.bare[name][at] += not ask

    def best(self, task: Task, gang: dict[str, None]) -> str | None:
        groups = {self.group[name] for name in gang} - {""}

        def key(name: str) -> tuple[int, int, str]:
            near = 2 if name in gang else 1 if self.group[name] in groups else 0
            return (-near, -self.score(name, task), name)

        return min((name for name in self.given if self.fits(name, task)), key=key, default=None)


@given(nodes=clusters(), jobs=st.lists(TASKS, min_size=1, max_size=6), together=st.booleans())
def test_each_pod_without_chips_is_on_the_best_node_near_its_gang(
    nodes: list[NodeDescription], jobs: list[list[Task]], *, together: bool
) -> None:
    seat, book = seat_of(nodes, strict_job_shape=False), Book(nodes)
    requests = {f"j{number}": job(number, tasks) for number, tasks in enumerate(jobs)}
    verdicts: list[Verdict] = []
    for request in requests.values():
        seat.job(request)
        record = None if together else seat.round()
        verdicts += record.verdicts if record is not None else []
    record = seat.round()
    verdicts += record.verdicts if record is not None else []
    for verdict in verdicts:
        request = requests[verdict.name]
        tasks = [task for task in request.tasks for _ in range(task.replicas)]
        found = verdict.placement.names() if verdict.placement is not None else []
        if verdict.placement is None:
            if all(not task.chips for task in tasks):
                trial = Book(nodes)
                trial.used, trial.bare = (
                    {name: list(one) for name, one in them.items()} for them in (book.used, book.bare)
                )
                assert _packed(trial, tasks, {}) is None
            continue
        assert len(found) == len(tasks), "a gang is placed whole"
        assert [len(pod.chips) for pod in pods_of(verdict.placement)] == [task.chips for task in tasks]
        gang = {name: None for name, task in zip(found, tasks, strict=True) if task.chips}
        for name, task in zip(found, tasks, strict=True):
            if task.chips:
                assert book.fits(name, task)
                book.take(name, task)
        plain = [task for task in tasks if not task.chips]
        assert _packed(book, plain, gang) == [name for name, task in zip(found, tasks, strict=True) if not task.chips]


def _packed(book: Book, tasks: Sequence[Task], gang: dict[str, None]) -> list[str] | None:
    """Nodes of pods, one after the other; None if one finds none."""
    names = []
    for task in tasks:
        name = book.best(task, gang)
        if name is None:
            return None
        book.take(name, task)
        names.append(name)
    return names


@given(
    nodes=clusters(),
    before=st.lists(TASKS, max_size=3),
    jobs=st.lists(st.tuples(TASKS, st.integers(0, 2)), min_size=1, max_size=8),
    policy=st.sampled_from(POLICIES),
    reserve=st.sampled_from((1, 8, 16)),
)
def test_jobs_without_chips_change_no_verdict_of_a_round_on_jobs_with_chips(
    nodes: list[NodeDescription],
    before: list[list[Task]],
    jobs: list[tuple[list[Task], int]],
    policy: str,
    reserve: int,
) -> None:
    found = []
    for with_plain in (True, False):
        seat = seat_of(nodes, queue_policy=policy, reserve_chips=reserve, unknown_run_ms=1_000, strict_job_shape=False)
        for number, tasks in enumerate(before):
            seat.job(job(100 + number, tasks))
        seat.round(at_ms=5)
        for number, (tasks, priority) in enumerate(jobs):
            if with_plain or any(task.chips for task in tasks):
                seat.job(job(number, tasks, priority=priority))
        record = seat.round(at_ms=6)
        verdicts = record.verdicts if record is not None else []
        with_chips = {f"j{number}" for number, (tasks, _) in enumerate(jobs) if any(task.chips for task in tasks)}
        found.append([one for one in verdicts if one.name in with_chips])
    assert found[0] == found[1]


@given(
    nodes=clusters(),
    jobs=st.lists(st.tuples(TASKS, st.integers(0, 2)), min_size=1, max_size=8),
    policy=st.sampled_from(POLICIES),
)
def test_no_job_without_chips_waits_behind_another_or_for_chips(
    nodes: list[NodeDescription], jobs: list[tuple[list[Task], int]], policy: str
) -> None:
    seat = seat_of(nodes, queue_policy=policy, reserve_chips=1, unknown_run_ms=1_000, strict_job_shape=False)
    for number, (tasks, priority) in enumerate(jobs):
        seat.job(job(number, tasks, priority=priority))
    record: Round | None = seat.round(at_ms=5)
    plain = {f"j{number}" for number, (tasks, _) in enumerate(jobs) if not any(task.chips for task in tasks)}
    refused = {
        one.name: one.refusal for one in (record.verdicts if record is not None else []) if one.refusal is not None
    }
    codes = {refused[name].code for name in plain & refused.keys()}
    assert codes <= ({"no-room", "reserved"} if policy in {"easy", "conservative"} else {"no-room"})


@st.composite
def crowds(draw: st.DrawFn) -> list[PlannedJob]:
    """Jobs with and without chips that crowd the cpu and the chips of a few nodes, and say how long they run."""
    jobs = []
    for number in range(draw(st.integers(2, 16))):
        run_s = draw(st.integers(1, 40))
        one = planned(f"j{number:02}", draw(st.integers(0, 50)), run_s, 0, declared_s=run_s)
        cpu = draw(st.sampled_from((0, 40_000, 100_000, 150_000)))
        chips = draw(st.sampled_from((0, 0, 4, 8)))
        tasks = [Task("worker", draw(st.integers(1, 3)), chips, cpu)]
        if draw(st.booleans()):
            tasks.insert(0, Task("master", 1, 0, draw(st.sampled_from((0, 60_000)))))
        jobs.append(PlannedJob(a_request(one.request, tasks), one.at_ms, one.run_ms, 0))
    return sorted(jobs, key=lambda one: one.at_ms)


def a_request(request: JobRequest, tasks: list[Task]) -> JobRequest:
    known = NODE_PRODUCTS["module910bx8"]
    return JobRequest(
        request.namespace, request.name, request.uid, request.resource, tasks, node_selector=dict(known.selector),
        run_ms=request.run_ms,
    )  # fmt: skip


@given(jobs=crowds(), nodes=st.integers(1, 4))
def test_under_easy_jobs_without_chips_delay_no_promise_when_run_times_are_exact(
    jobs: list[PlannedJob], nodes: int
) -> None:
    rules = Settings(queue_policy="easy", reserve_chips=1)
    _, timeline, entries = run_of(a_plan(*jobs, cluster=f"nodes={nodes}", settings=rules))
    known = jobs_of(timeline)
    for name, moments in promises(entries).items():
        assert 0 <= known[name].placed_ms <= min(moments), name
