"""Queues of a story as objects of the API server, right and wrong ones, and the queues that jobs name."""

from random import Random
from typing import Any, Final

from berth.formats.gang_keys import QUEUE_NAME
from berth.formats.queues.queue_objects import NAMESPACES, PER_NAMESPACE
from berth.schemas.queues.queue import CHIP, CPU, MEMORY, Amounts, Queue
from tests.fuzz.queues import LEAVES, a_queue, drawn_name
from tests.support.kube_rules import Tree

NAMED: Final = 0.9
"""Share of the jobs that name a queue."""
_OTHERS: Final = ("lab", "small", "missing")
_CPU: Final = 1000
WRONG: Final[tuple[dict[str, Any], ...]] = (
    {"spec": {"weight": "many"}},
    {"spec": {"weight": -1}},
    {"spec": {"priority": -3}},
    {"spec": {"capability": {"huawei.com/Ascend910": "1500m"}}},
    {"spec": {"capability": {"huawei.com/Ascend910": "-8"}}},
    {"spec": {"capability": {"cpu": "many"}}},
    {"spec": {"capability": ["8"]}},
    {"spec": {"guarantee": {"resource": "all"}}},
    {"spec": {"parent": "Not a name"}},
    {"spec": {"dequeueStrategy": "any"}},
    {"spec": {"reclaimable": "maybe"}},
    {"metadata": {"annotations": {NAMESPACES: "ns, No Name"}}},
    {"metadata": {"annotations": {PER_NAMESPACE: "{"}}},
    {"metadata": {"annotations": {PER_NAMESPACE: '{"cpu": -1}'}}},
)
"""Fields of a queue that are wrong, as a patch."""


def a_declared_queue(resources: list[str], dice: Random) -> Queue:
    """A queue of a small tree for the jobs of a story."""
    return a_queue(drawn_name(dice), resources, dice, cpu=_CPU, namespace="ns")


def volcano_queue(queue: Queue) -> Tree:
    """A queue as an object of Volcano."""
    annotations: dict[str, str] = {}
    if queue.namespaces is not None:
        annotations[NAMESPACES] = ", ".join(queue.namespaces)
    if queue.per_namespace:
        parts = ", ".join(f'"{name}": "{text}"' for name, text in quantities(queue.per_namespace).items())
        annotations[PER_NAMESPACE] = f"{{{parts}}}"
    spec: Tree = {"weight": queue.weight, "priority": queue.priority, "reclaimable": queue.reclaimable}
    spec |= {"parent": queue.parent} if queue.parent else {}
    spec |= {"capability": quantities(queue.capability)} if queue.capability else {}
    spec |= {"guarantee": {"resource": quantities(queue.guarantee)}} if queue.guarantee else {}
    spec |= {"deserved": quantities(queue.deserved)} if queue.deserved else {}
    spec |= {"dequeueStrategy": "fifo"} if queue.is_fifo else {}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": queue.name, "annotations": annotations},
        "spec": spec,
        "status": {"state": queue.state or "Open"},
    }


def quantities(amounts: Amounts) -> dict[str, str]:
    """Amounts as quantities of Kubernetes."""
    units = {CPU: "m", MEMORY: "Mi"}
    return {
        name: f"{amount}{units[name]}" if name in units else str(amount // CHIP) for name, amount in amounts.items()
    }


def queue_of_job(dice: Random) -> str:
    """Queue that a job names; empty for none."""
    if dice.random() >= NAMED:
        return ""
    return dice.choice(LEAVES if dice.random() < NAMED else _OTHERS)


def in_a_queue(body: Tree, dice: Random) -> Tree:
    """A job, a PodGroup or a pod that names a queue, or none."""
    name = queue_of_job(dice)
    spec = body.get("spec") or {}
    match body.get("kind", "PodGroup"):
        case "Job" | "PodGroup":
            return {
                **body,
                "spec": {**spec, "queue": name} if name else {k: v for k, v in spec.items() if k != "queue"},
            }
        case "AscendJob":
            policy = spec["runPolicy"]
            scheduling = {**policy["schedulingPolicy"], "queue": name}
            return {**body, "spec": {**spec, "runPolicy": {**policy, "schedulingPolicy": scheduling}}}
        case _:
            key = dice.choice((QUEUE_NAME, "volcano.sh/queue-name"))
            notes = body["metadata"].get("annotations") or {}
            return {**body, "metadata": {**body["metadata"], "annotations": {**notes, **({key: name} if name else {})}}}
