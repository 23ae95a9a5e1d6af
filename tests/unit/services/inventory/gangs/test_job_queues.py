"""The queue of a job: of its PodGroup, its owner, its first pod or its namespace, in this order."""

import pytest

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.pods import PodRequirementsReader
from berth.formats.kubernetes.storage_objects import Namespace
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.services.inventory.namespace_queues import NamespaceQueues
from berth.services.inventory.pod_rows import read_row
from berth.services.inventory.storage.collection import Storage
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, facts_of, requested, running

KEY = OwnerKey("PyTorchJob", "ns", "llm")
OWNER = ("kubeflow.org/v1", "PyTorchJob", "llm", "u")
NAMED = "scheduling.volcano.sh/queue-name"


def queue_of(group: str | None, policy: str, of_owner: str, of_pod: str, of_namespace: str) -> str:
    """Queue of a job of which each part may name one; a job with a PodGroup has no owner that is read."""
    world = GangWorld()
    if of_namespace:
        world.gangs.queues.set_namespaces({"ns": of_namespace, "other": "wrong"})
    annotations = {NAMED: of_pod} if of_pod else {}
    if group is not None:
        world.gangs.set_group(a_group("pg", least=1, queue=group))
        world.pods(a_pod("a", group="pg", annotations=annotations))
        world.settle()
        return world.published[-1].queue
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
    world.pods(a_pod("llm-worker-0", owner=OWNER, labels=labels, annotations=annotations))
    world.settle()
    spec = {
        "pytorchReplicaSpecs": {"Worker": {"replicas": 1}},
        "runPolicy": {"schedulingPolicy": {"queue": policy}},
    }
    world.gangs.set_owner(KEY, facts_of(KEY, spec, uid="u", annotations={NAMED: of_owner} if of_owner else {}))
    world.settle()
    return world.published[-1].queue


@pytest.mark.parametrize(
    ("group", "policy", "of_owner", "of_pod", "of_namespace", "queue"),
    [
        ("group", "", "", "pod", "namespace", "group"),
        ("", "", "", "pod", "namespace", "pod"),
        ("", "", "", "", "namespace", "namespace"),
        ("", "", "", "", "", "default"),
        (None, "policy", "owner", "pod", "namespace", "policy"),
        (None, "", "owner", "pod", "namespace", "owner"),
        (None, "", "", "pod", "namespace", "pod"),
        (None, "", "", "", "namespace", "namespace"),
        (None, "", "", "", "", "default"),
    ],
)
def test_the_first_that_names_a_queue_counts(
    group: str | None, policy: str, of_owner: str, of_pod: str, of_namespace: str, queue: str
) -> None:
    assert queue_of(group, policy, of_owner, of_pod, of_namespace) == queue


def test_a_job_that_waits_goes_to_the_queue_that_its_namespace_names_now() -> None:
    world = GangWorld()
    world.pods(a_pod("a"))
    world.settle()
    world.gangs.queues.set_namespaces({"ns": "gold"})
    world.settle()
    assert world.withdrawn == []
    assert [request.queue for request in world.published] == ["default", "gold"]
    assert len({request.uid for request in world.published}) == 1


def test_a_job_that_runs_says_in_which_queue_its_next_attempt_is() -> None:
    world = running(2)
    world.gangs.set_group(a_group("pg", least=2, version="9", queue="gold"))
    world.settle()
    world.verdict(BASE)
    world.settle()
    assert world.withdrawn == []
    assert [(one.queue, one.uid) for one in world.published] == [
        (queue, world.requests[BASE].uid) for queue in ("default", "gold")
    ]


def test_a_job_whose_pods_are_being_made_anew_goes_to_the_queue_that_its_group_names_now() -> None:
    world = running(2)
    world.status(BASE, "waiting", attempt=2)
    for index in range(2):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.gangs.set_group(a_group("pg", least=2, version="9", queue="gold"))
    world.settle(after_s=1)
    assert (world.withdrawn, world.requests[BASE].queue, world.requests[BASE].priority) == ([], "gold", 0)


def test_a_job_goes_to_no_queue_with_a_name_that_is_too_long() -> None:
    world = requested(1)
    world.gangs.set_group(a_group("pg", least=1, version="9", queue="q" * 1_000))
    world.settle()
    assert [why for _, _, why in world.withdrawn] == [f"its queue is now {'q' * 64}, not default"]
    assert world.hold(BASE).startswith("no request is made for so large a gang: queue is 1000 key")
    assert world.requests[BASE].queue == "default"


def test_a_queue_that_was_not_taken_is_named_again() -> None:
    """The dispatcher judged the first request last, or leads anew from the facts."""
    world = requested(1)
    first = world.job(BASE)
    world.gangs.set_group(a_group("pg", least=1, version="9", queue="gold"))
    world.settle()
    world.gangs.note_job(first)
    world.gangs.set_group(a_group("pg", least=1, version="10", queue="gold"))
    world.settle()
    assert [request.queue for request in world.published] == ["default", "gold", "gold"]


def test_a_pod_of_another_scheduler_has_the_queue_of_its_group_its_annotation_or_its_namespace() -> None:
    world = GangWorld()
    queues = world.gangs.queues
    row = read_row(
        a_pod("a", node="n1", group="pg", scheduler="volcano", annotations={NAMED: "pod"}), PodRequirementsReader()
    )
    plain = read_row(a_pod("b", node="n1", scheduler="volcano"), PodRequirementsReader())
    assert row is not None
    assert plain is not None
    assert (queues.of_row(row), queues.of_row(plain)) == ("pod", "")
    queues.set_namespaces({"ns": "namespace"})
    world.gangs.set_group(a_group("pg", queue="group"))
    assert (queues.of_row(row), queues.of_row(plain)) == ("group", "namespace")


def test_namespaces_are_passed_on_and_their_queues_once() -> None:
    taken: list[dict[str, str]] = []
    storage = Storage()
    namespaces = NamespaceQueues(storage.namespaces, lambda queues: taken.append(dict(queues)))
    nlp, web = a_namespace("nlp", "llm"), a_namespace("web")
    namespaces.replace([nlp, web])
    namespaces.replace([nlp, web])
    namespaces.put(a_namespace("web", "ads"))
    namespaces.put(a_namespace("nlp"))
    namespaces.drop(web)
    assert taken == [{"nlp": "llm"}, {"nlp": "llm", "web": "ads"}, {"web": "ads"}, {}]
    assert [fact.name for fact in storage.due(1)] == ["nlp"]


def a_namespace(name: str, queue: str = "") -> Namespace:
    return Namespace(metadata=Meta(name=name, annotations={NAMED: queue} if queue else None))
