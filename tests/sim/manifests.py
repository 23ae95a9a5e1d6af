"""Objects that users of a simulated cell make: jobs of all kinds and pods, with features that the dice of an event
combine.
"""

import copy
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from tests.sim.heavy import TASKS
from tests.sim.worlds import TOR_AFFINITY, Ask
from tests.support.kube_rules import Tree

PRIORITIES: Final = {"high": 1000, "low": -10}
"""PriorityClasses of a story."""
FAULT_LABELS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"fault-scheduling": "grace"},
    {"fault-scheduling": "force", "pod-rescheduling": "on"},
    {"fault-scheduling": "grace", "pod-rescheduling": "on", "subHealthyStrategy": "graceExit"},
    {"fault-scheduling": "force", "subHealthyStrategy": "forceExit"},
    {"fault-scheduling": "force", "pod-rescheduling": "on", "subHealthyStrategy": "hotSwitch"},
    {"fault-scheduling": "force", "fault-retry-times": "2"},
    {"fault-scheduling": "grace", "pod-rescheduling": "on", "process-recover-enable": "on"},
    {"fault-scheduling": "force", "elastic-scheduling": "on"},
    {"fault-scheduling": "off"},
    {"fault-scheduling": "external-grace"},
    {"fault-scheduling": "external-force"},
)
"""What a job says about faults."""
FAULT_ANNOTATIONS: Final[tuple[dict[str, str], ...]] = (
    {}, {}, {}, {"recover-strategy": "recover"}, {"huawei.com/recover_policy_path": "pod"},
    {"huawei.com/recover_policy_path": "job"}, {"ProcessRecoverStrategy": "recover"},
)  # fmt: skip
SWITCH_VALUES: Final = ("normal-schema", "large-model-schema", "large-model-schema", "null")
POLICIES: Final[tuple[list[dict[str, Any]], ...]] = (
    [], [], [{"event": "PodFailed", "action": "RestartJob"}], [{"event": "PodEvicted", "action": "RestartJob"}],
    [{"event": "PodFailed", "action": "RestartPod"}], [{"event": "TaskCompleted", "action": "CompleteJob"}],
)  # fmt: skip
FRAMEWORKS: Final = ("pytorch", "pytorch", "mindspore", "tensorflow", "")


def run_for(dice: Random) -> dict[str, str]:
    """Annotation with the run time of pods."""
    return {"berth/run-for": f"{dice.choice((2, 5, 10, 30))}s"}


def spec_of(ask: Ask, chips: int, dice: Random, *, name: str, claims: Sequence[str] = ()) -> Tree:
    """Spec of a pod; ``name`` is the value of its label ``part-of``."""
    requests = {"cpu": "1", "memory": "1Gi"}
    resources: Tree = {"requests": requests}
    if chips:
        count = {ask.node.resource: str(chips)}
        resources = {"requests": requests | count, "limits": count}
    spec: Tree = {
        "schedulerName": "berth",
        "restartPolicy": "Never",
        "nodeSelector": dict(ask.node.selector),
        "containers": [{"name": "main", "image": "registry.example/none:1", "resources": resources}],
    }
    if claims:
        spec["volumes"] = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    if dice.random() < 0.15:
        priority = dice.choice(sorted(PRIORITIES))
        spec |= {"priorityClassName": priority, "priority": PRIORITIES[priority]}
    if dice.random() < 0.2:
        spec |= dice.choice(list(_constraints(name)))
    if dice.random() < 0.05:
        spec["containers"][0]["ports"] = [{"containerPort": 8000, "hostPort": dice.choice((8000, 8001))}]
    return spec


def _constraints(name: str) -> Iterator[Tree]:
    """Constraints beside those of the product."""
    selector = {"matchLabels": {"part-of": name}}
    host = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    everybody = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"kind": "sim"}}}
    yield {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [host]}}}
    yield {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [host]}}}
    yield {
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": everybody}]
            }
        }
    }
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    yield {"topologySpreadConstraints": [{**spread, "whenUnsatisfiable": "DoNotSchedule"}]}
    yield {"topologySpreadConstraints": [{**spread, "whenUnsatisfiable": "ScheduleAnyway"}]}
    yield {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}


def labels_of(ask: Ask, dice: Random) -> dict[str, str]:
    """Labels of a job."""
    found = {**ask.all_labels, **dice.choice(FAULT_LABELS)}
    framework = dice.choice(FRAMEWORKS)
    if framework:
        found["framework"] = framework
    if dice.random() < (0.4 if ask.is_switched else 0.05):
        found[TOR_AFFINITY] = dice.choice(SWITCH_VALUES)
    return found


def template_of(ask: Ask, chips: int, dice: Random, *, name: str, claims: Sequence[str] = ()) -> Tree:
    """Template of the pods of a job."""
    metadata = {
        "annotations": {**run_for(dice), **(ask.all_annotations if chips else {})},
        "labels": {**ask.node.job_labels, "part-of": name, "kind": "sim"},
    }
    return {"metadata": metadata, "spec": spec_of(ask, chips, dice, name=name, claims=claims)}


def volcano_job(name: str, ask: Ask, dice: Random, *, claims: Sequence[str] = ()) -> Tree:
    """A Volcano job of one task or several; claims are those of the first task."""
    chips, replicas = dice.choice(ask.sizes), dice.choice(ask.pods)
    tasks = [
        {
            "name": "worker",
            "replicas": replicas,
            "template": template_of(ask, chips, dice, name=name, claims=claims),
        }
    ]
    if dice.random() < 0.15:
        tasks.append({"name": "extra", "replicas": 1, "template": template_of(ask, chips, dice, name=name)})
    if dice.random() < 0.15:
        tasks.append({"name": "scheduler", "replicas": 1, "template": template_of(ask, 0, dice, name=name)})
    size = sum(int(str(task["replicas"])) for task in tasks)
    least = dice.randrange(1, size + 1) if dice.random() < 0.2 else size
    spec: Tree = {"schedulerName": "berth", "minAvailable": least, "tasks": tasks}
    spec |= {"policies": dice.choice(POLICIES), "maxRetry": dice.choice((0, 1, 3))}
    if dice.random() < 0.2:
        spec["queue"] = dice.choice(("default", "small", "missing"))
    if dice.random() < 0.2:
        spec["priorityClassName"] = dice.choice((*sorted(PRIORITIES), "missing"))
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "annotations": {**ask.all_annotations, **dice.choice(FAULT_ANNOTATIONS)},
            "labels": labels_of(ask, dice),
        },
        "spec": spec,
    }


def heavy_job(name: str, ask: Ask, dice: Random) -> Tree:
    """A Volcano job of many tasks of one pod, which differ in cpu."""
    body = volcano_job(name, ask, dice)
    count = dice.choice(TASKS)
    template = template_of(ask, ask.sizes[0], dice, name=name)
    tasks: list[Tree] = [
        {"name": f"t{number}", "replicas": 1, "template": copy.deepcopy(template)} for number in range(count)
    ]
    for number, task in enumerate(tasks):
        task["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{10 + number}m"
    body["spec"] |= {"tasks": tasks, "minAvailable": count}
    return body


def ascend_job(name: str, ask: Ask, dice: Random) -> Tree:
    """An AscendJob; its labels let it recover from faults, or not."""
    pods = max(1, dice.choice(ask.pods))
    chips = ask.sizes[-1]

    def replicas(count: int) -> Tree:
        policy = dice.choice(("Never", "Never", "OnFailure"))
        return {"replicas": count, "restartPolicy": policy, "template": template_of(ask, chips, dice, name=name)}

    specs = {"Master": replicas(1)}
    if pods > 1:
        specs["Worker"] = replicas(pods - 1)
    if dice.random() < 0.1:
        specs = {"Scheduler": {**replicas(1), "template": template_of(ask, 0, dice, name=name)}, **specs}
    size = sum(int(one["replicas"]) for one in specs.values())
    return {
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "metadata": {
            "name": name,
            "labels": labels_of(ask, dice),
            "annotations": {**ask.all_annotations, **dice.choice(FAULT_ANNOTATIONS)},
        },
        "spec": {
            "schedulerName": "berth",
            "runPolicy": {
                "backoffLimit": dice.choice((0, 2)),
                "schedulingPolicy": {"minAvailable": size, "queue": dice.choice(("", "", "small"))},
            },
            "replicaSpecs": specs,
        },
    }


def pod(name: str, ask: Ask, dice: Random, *, claims: Sequence[str] = (), chips: int | None = None) -> Tree:
    """A pod of its own, with or without chips."""
    count = dice.choice((0, *ask.sizes)) if chips is None else chips
    template = template_of(ask, count, dice, name=name, claims=claims)
    labels = {**labels_of(ask, dice), **template["metadata"]["labels"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **template,
        "metadata": {**template["metadata"], "name": name, "labels": labels},
    }


def owned(body: Tree, kind: str, api_version: str, owner: Tree) -> Tree:
    """A pod with a controller."""
    meta = owner["metadata"]
    reference = {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [reference]}}
