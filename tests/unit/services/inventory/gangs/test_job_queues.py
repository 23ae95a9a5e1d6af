"""The queue of a job: of its PodGroup, its owner, its first pod or its namespace, in this order."""

import pytest

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.owners import OwnerKey
from berth.formats.kubernetes.pods import PodAsks
from berth.formats.kubernetes.storage_objects import Namespace
from berth.services.inventory.namespace_queues import NamespaceQueues
from berth.services.inventory.pod_rows import read_row
from berth.services.inventory.storage.collection import Storage
from tests.support.gang_world import GangWorld, a_group, a_pod, facts_of

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
    assert [why for _, _, why in world.withdrawn] == ["its queue is now gold, not default"]
    assert [request.queue for request in world.published] == ["default", "gold"]


def test_a_pod_of_another_scheduler_has_the_queue_of_its_group_its_annotation_or_its_namespace() -> None:
    world = GangWorld()
    queues = world.gangs.queues
    row = read_row(a_pod("a", node="n1", group="pg", scheduler="volcano", annotations={NAMED: "pod"}), PodAsks())
    plain = read_row(a_pod("b", node="n1", scheduler="volcano"), PodAsks())
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
