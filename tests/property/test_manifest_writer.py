"""What is written as an object of Kubernetes asks for the same when it is read: as a manifest, and from its pods.

That includes labels and constraints of the tasks.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pods import PodRequirements, near_of, pod_requirements
from berth.formats.manifests.gang_request import PRIORITY_CLASS, RUN_FOR, joined_labels
from berth.formats.manifests.reader import parse_jobs
from berth.formats.manifests.writer import (
    least_pods,
    priority_class,
    write_ascend_job,
    write_batch_job,
    write_pod,
    write_priority_class,
    write_volcano_job,
)
from berth.formats.yaml_tree import merged
from berth.schemas.constraints import Expression, Term, Toleration
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import (
    HostPort,
    LabelSelector,
    PodConstraints,
    PodTerm,
    PreferredNodes,
    PreferredPods,
    SpreadTerm,
)
from berth.services.inventory.gangs.requests import task_requirements

NAMES = st.from_regex(r"[a-z]([a-z0-9]{0,6})", fullmatch=True)
WORDS = st.sampled_from(["yes", "no", "true", "4", "1.5", "module-910b-8", "x_y.z"])
LABELS = st.dictionaries(st.sampled_from(["duo", "tor-affinity", "a.b/c", "npu-310-strategy"]), WORDS, max_size=3)
SELECTORS = st.dictionaries(st.sampled_from(["accelerator-type", "zone", "rack"]), WORDS, max_size=2)
EXPRESSIONS = st.one_of(
    st.builds(Expression, st.sampled_from(["zone", "rack"]), st.sampled_from(["In", "NotIn"]), st.tuples(WORDS, WORDS)),
    st.builds(Expression, st.just("zone"), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(Expression, st.just("zone"), st.sampled_from(["Gt", "Lt"]), st.just(("7",))),
    st.builds(Expression, st.just("metadata.name"), st.sampled_from(["In", "NotIn"]), st.just(("n1",))),
)
TERMS = st.lists(st.builds(Term, st.lists(EXPRESSIONS, min_size=1, max_size=3).map(tuple)), max_size=2)
TOLERATIONS = st.lists(
    st.one_of(
        st.builds(Toleration, NAMES, st.just("Equal"), WORDS, st.sampled_from(["", "NoSchedule", "NoExecute"])),
        st.builds(Toleration, st.sampled_from(["", "k"]), st.just("Exists"), st.just(""), st.just("NoExecute")),
    ),
    max_size=2,
)


SELECTED = st.lists(
    st.one_of(
        st.builds(Expression, st.sampled_from(["app", "a.b/c"]), st.sampled_from(["In", "NotIn"]), st.sampled_from([("x",), ("x", "y")])),
        st.builds(Expression, st.just("tier"), st.sampled_from(["Exists", "DoesNotExist"])),
    ),
    max_size=2,
    unique=True,
).map(lambda found: LabelSelector(tuple(sorted(found, key=lambda one: (one.key, one.operator, one.values)))))  # fmt: skip
POD_TERMS = st.one_of(
    st.builds(PodTerm, st.sampled_from(["zone", "rack"]), st.none() | SELECTED, st.sampled_from([("a",), ("a", "b")]), st.none() | SELECTED),
    st.builds(PodTerm, st.just("zone"), SELECTED, st.just(()), SELECTED),
)  # fmt: skip
SPREADS = st.builds(
    SpreadTerm,
    st.sampled_from(["zone", "rack"]),
    st.integers(1, 3),
    st.none() | SELECTED.filter(lambda one: bool(one.expressions)),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)
PORTS = st.builds(HostPort, st.integers(1, 65_535), st.sampled_from(["TCP", "UDP"]), st.sampled_from(["", "10.0.0.1"]))
AMOUNTS = st.dictionaries(st.sampled_from(["rdma/hca", "hugepages-2Mi", "ephemeral-storage"]), st.integers(1, 1 << 40), max_size=2)  # fmt: skip
WEIGHTS = st.integers(1, 100)


def several(one: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(one, max_size=2, unique=True).map(tuple)


CONSTRAINTS = st.builds(
    PodConstraints,
    affinity=several(POD_TERMS),
    anti_affinity=several(POD_TERMS),
    spread=several(SPREADS),
    ports=st.lists(PORTS, max_size=2, unique_by=lambda one: (one.port, one.protocol)).map(
        lambda found: tuple(sorted(found, key=lambda one: (one.port, one.protocol, one.address)))
    ),
    resources=AMOUNTS.map(lambda found: tuple(sorted(found.items()))),
    claims=st.lists(NAMES, max_size=2, unique=True).map(lambda found: tuple(sorted(found))),
    preferred_nodes=several(st.builds(PreferredNodes, WEIGHTS, st.builds(Term, st.lists(EXPRESSIONS, min_size=1, max_size=2).map(tuple)))),
    preferred_near=several(st.builds(PreferredPods, WEIGHTS, POD_TERMS)),
    preferred_apart=several(st.builds(PreferredPods, WEIGHTS, POD_TERMS)),
    preferred_spread=several(SPREADS),
)  # fmt: skip
OPTIONAL = st.none() | CONSTRAINTS.map(lambda found: found if found != PodConstraints() else None)


def tasks(names: list[str]) -> st.SearchStrategy[list[Task]]:
    one = st.builds(
        Task,
        name=st.just(""),
        replicas=st.integers(1, 5),
        chips=st.integers(0, 16),
        cpu_milli=st.integers(0, (1 << 31) - 1),
        memory_mib=st.integers(0, (1 << 31) - 1),
        node_selector=SELECTORS,
        affinity=TERMS,
        tolerations=TOLERATIONS,
        labels=LABELS,
        constraints=OPTIONAL,
    )
    return st.lists(one, min_size=len(names), max_size=len(names)).map(
        lambda found: [msgspec.structs.replace(task, name=name) for task, name in zip(found, names, strict=True)]
    )


def labels_of(made: list[Task], own: dict[str, str]) -> dict[str, str]:
    """Labels of a job as the inventory has them: different values of its tasks are joined."""
    return merged(own, joined_labels([task.labels for task in made]))


@st.composite
def requests(draw: st.DrawFn, named: st.SearchStrategy[list[str]]) -> JobRequest:
    made = draw(tasks(draw(named)))
    chips = any(task.chips for task in made)
    pods = sum(task.replicas for task in made)
    policy = draw(st.sampled_from(["", "chip8-node8", "chip4-node8"]))
    return JobRequest(
        namespace=draw(NAMES),
        name=draw(NAMES),
        uid="",
        resource="huawei.com/Ascend910" if chips else "",
        tasks=made,
        labels=labels_of(made, draw(LABELS)),
        annotations={"huawei.com/schedule_policy": policy} if policy else {},
        node_selector=draw(SELECTORS),
        queue=draw(st.sampled_from(["default", "research"])),
        priority=draw(st.sampled_from([0, 100, -10, 2_000_000_000, 1_000_000_000])),
        min_available=draw(st.integers(0, pods)),
        run_ms=draw(st.sampled_from([0, 1, 2500, 86_400_000])),
        near=draw(LABELS),
    )


SEVERAL = st.lists(NAMES, min_size=1, max_size=3, unique=True)
REPLICAS = st.sampled_from([["worker"], ["master", "worker"], ["scheduler", "worker"], ["chief", "worker"]])
ONE = st.just(["work"])


def ordered(ask: PodRequirements) -> PodRequirements:
    """The ask with the conditions of each term in one order: names of nodes are written after labels."""
    affinity = tuple(Term(tuple(sorted(term.expressions, key=repr))) for term in ask.affinity)
    wanted = ask.constraints
    if wanted is not None:
        nodes = tuple(
            PreferredNodes(one.weight, Term(tuple(sorted(one.term.expressions, key=repr))))
            for one in wanted.preferred_nodes
        )
        wanted = msgspec.structs.replace(wanted, preferred_nodes=nodes)
    return msgspec.structs.replace(ask, affinity=affinity, constraints=wanted)


def asked(request: JobRequest, task: Task) -> PodRequirements:
    """What a written pod asks for: the labels near which it prefers to be are a preferred term of pod affinity."""
    ask = task_requirements(request, task)
    if not request.near:
        return ask
    labels = tuple(Expression(key, "In", (request.near[key],)) for key in sorted(request.near))
    near = PodTerm("kubernetes.io/hostname", LabelSelector(labels), (request.namespace,))
    wanted = ask.constraints or PodConstraints()
    with_near = (PreferredPods(1, near), *wanted.preferred_near)
    return msgspec.structs.replace(ask, constraints=msgspec.structs.replace(wanted, preferred_near=with_near))


def by_rank(request: JobRequest) -> list[PodRequirements]:
    """What each pod asks for."""
    return [ordered(task_requirements(request, task)) for task in request.tasks for _ in range(task.replicas)]


def wanted_by_rank(request: JobRequest) -> list[PodRequirements]:
    """What each pod asks for once it is written."""
    return [ordered(asked(request, task)) for task in request.tasks for _ in range(task.replicas)]


def read(tree: dict[str, Any]) -> JobRequest:
    (found,) = parse_jobs(json.dumps(tree))
    return found


def compare(found: JobRequest, request: JobRequest, *, beside: tuple[str, ...] = ()) -> None:
    assert (found.namespace, found.name, found.resource) == (request.namespace, request.name, request.resource)
    assert by_rank(found) == wanted_by_rank(request)
    for task, labels in zip(found.tasks, pod_labels(found, request), strict=True):
        assert own_labels(task.labels, beside) == labels
    assert least_pods(found) == least_pods(request)
    assert (found.queue, found.priority, found.run_ms) == (request.queue, request.priority, request.run_ms)
    assert found.near == request.near
    assert own_labels(found.labels, beside) == request.labels
    added = {RUN_FOR, PRIORITY_CLASS, *beside}
    assert {key: text for key, text in found.annotations.items() if key not in added} == request.annotations


def own_labels(labels: dict[str, str], beside: tuple[str, ...]) -> dict[str, str]:
    """Labels without those that a controller gives its pods."""
    added = ("volcano.sh/", "training.kubeflow.org/", "batch.kubernetes.io/", "job-name")
    return {key: text for key, text in labels.items() if key not in beside and not key.startswith(added)}


def pod_labels(found: JobRequest, request: JobRequest) -> list[dict[str, str]]:
    """Labels of the pods of each task that was read: its own, and those of the job that are not several values."""
    of_ranks = [task.labels for task in request.tasks for _ in range(task.replicas)]
    joined = joined_labels([task.labels for task in request.tasks])
    own = {key: text for key, text in request.labels.items() if "|" not in text or joined.get(key) != text}
    starts = [sum(task.replicas for task in found.tasks[:at]) for at in range(len(found.tasks))]
    return [merged(of_ranks[start], own) for start in starts]


@given(requests(SEVERAL))
def test_a_volcano_job(request: JobRequest) -> None:
    found = read(write_volcano_job(request))
    compare(found, request)
    assert [(task.name, task.replicas) for task in found.tasks] == [(t.name, t.replicas) for t in request.tasks]


@given(requests(st.one_of(REPLICAS, ONE)))
def test_an_ascend_job(request: JobRequest) -> None:
    compare(read(write_ascend_job(request)), request, beside=("framework",))


@given(requests(ONE))
def test_a_job_of_kubernetes(request: JobRequest) -> None:
    gang = ("huawei.com/schedule_minAvailable", "scheduling.volcano.sh/queue-name")
    compare(read(write_batch_job(request)), request, beside=gang)


@given(requests(SEVERAL))
def test_the_pods_of_a_template_ask_for_what_the_task_does(request: JobRequest) -> None:
    for task, written in zip(request.tasks, write_volcano_job(request)["spec"]["tasks"], strict=True):
        spec = msgspec.convert(written["template"]["spec"], PodSpec)
        meta = Meta(namespace=request.namespace, labels=written["template"]["metadata"]["labels"])
        assert ordered(pod_requirements(spec, meta)) == ordered(asked(request, task))
        assert task.labels.items() <= written["template"]["metadata"]["labels"].items()
        assert (spec.scheduler_name, spec.priority or 0) == ("berth", request.priority)
        assert near_of(spec) == request.near


@given(requests(ONE))
def test_a_pod_alone(request: JobRequest) -> None:
    task = msgspec.structs.replace(request.tasks[0], replicas=1)
    request = msgspec.structs.replace(request, tasks=[task], min_available=1)
    pod = write_pod(request)
    meta = Meta(namespace=request.namespace, labels=pod["metadata"]["labels"])
    assert ordered(pod_requirements(msgspec.convert(pod["spec"], PodSpec), meta)) == ordered(asked(request, task))
    assert pod["metadata"]["labels"] == merged(task.labels, request.labels)
    assert pod["metadata"]["annotations"].items() >= request.annotations.items()


def test_classes_of_priority_have_names() -> None:
    def named(priority: int, annotations: dict[str, str] | None = None) -> str:
        request = JobRequest("ns", "j", "", "", [Task("t", 1, 0)], annotations=annotations or {}, priority=priority)
        return priority_class(request)

    assert [named(value) for value in (0, 100, -10, 2_000_000_000)] == [
        "",
        "berth-100",
        "berth-minus-10",
        "system-cluster-critical",
    ]
    assert named(7, {PRIORITY_CLASS: "high"}) == "high"
    assert write_priority_class("berth-100", 100)["value"] == 100


@pytest.mark.parametrize("write", [write_batch_job, write_pod])
def test_forms_of_one_task_refuse_several(write: Callable[[JobRequest], dict[str, Any]]) -> None:
    request = JobRequest("ns", "j", "", "", [Task("a", 1, 0), Task("b", 1, 0)])
    with pytest.raises(ValueError, match="j has 2 tasks, expected one"):
        write(request)
    with pytest.raises(ValueError, match="expected scheduler, master, chief, worker"):
        write_ascend_job(JobRequest("ns", "j", "", "", [Task("worker", 1, 0), Task("master", 1, 0)]))
    with pytest.raises(ValueError, match="j has 2 pods"):
        write_pod(JobRequest("ns", "j", "", "", [Task("a", 2, 0)]))


@pytest.mark.parametrize(
    ("wanted", "because"),
    [
        (PodConstraints(affinity=(PodTerm("zone", LabelSelector()),)), "affinity is"),
        (PodConstraints(spread=(SpreadTerm("zone", 1, LabelSelector()),)), "spread is"),
        (
            PodConstraints(ports=(HostPort(80), HostPort(80, address="10.0.0.1"))),
            "hostPort of 80: expected another port",
        ),
        (PodConstraints(resources=(("huawei.com/Ascend910", 1),)), "resources is"),
        (PodConstraints(claims=("b", "a")), "claims is"),
    ],
)
def test_what_a_template_cannot_state_is_refused(wanted: PodConstraints, because: str) -> None:
    request = JobRequest("ns", "j", "", "", [Task("t", 1, 0, constraints=wanted)])
    with pytest.raises(ValueError, match=f"task t of j cannot be written as a pod template: .*{because}"):
        write_pod(request)


def test_the_preferred_pods_of_a_request_from_pods_are_stated_once() -> None:
    near = PodTerm("zone", LabelSelector((Expression("app", "In", ("x",)),)), ("ns",))
    wanted = PodConstraints(preferred_near=(PreferredPods(7, near),))
    request = JobRequest("ns", "j", "", "", [Task("t", 1, 0, constraints=wanted)], near={"app": "x"})
    found = read(write_volcano_job(request))
    assert found.near == {"app": "x"}
    assert found.tasks[0].constraints == wanted
