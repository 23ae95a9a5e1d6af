"""Requests of histories: every product form, and what jobs ask besides chips."""

import random
from typing import Any, Final

import msgspec

from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.constraints import Expression, Term, Toleration
from berth.schemas.intake import JobRequest, Task
from tests.fuzz.breakage import MARK, POINTS
from tests.fuzz.families import ZONES
from tests.fuzz.preemption import DISPLACING, declaring
from tests.support.cells import a_job

SIZES: Final[dict[str, tuple[int, ...]]] = {
    "module910x8": (1, 2, 4, 8, 8),
    "half910x4": (1, 2, 4),
    "card910x2": (1, 2),
    "card910bx2": (1, 2),
    "module910bx8": (1, 2, 3, 4, 8, 8),
    "module910bx16": (1, 4, 8, 10, 16),
    "module910a3x16": (2, 4, 8, 16),
    "module910a3x8": (2, 4, 8),
    "superpod910a3x16": (16,),
    "superpod910a3x8": (8,),
    "superpod850x8": (8,),
    "superpod950x8": (8,),
    "module850x8": (1, 2, 4, 8),
    "chip4-node8": (1, 2, 4, 6, 8),
    "chip4-node16": (1, 4, 8, 16),
    "chip1-node8": (1, 3, 8),
    "chip1-node16": (1, 5, 16),
    "310p": (1, 2, 5, 8),
    "310p-duo": (1, 2, 2, 4, 8),
    "310": (1, 2, 4, 8),
    "soft-share": (1,),
}
_POLICIES: Final = {
    "superpod910a3x16": "chip2-node16-sp",
    "superpod910a3x8": "chip2-node8-sp",
    "superpod850x8": "chip8-node8-sp",
    "superpod950x8": "chip8-node8-ra64-sp",
}
_POLICY: Final = "huawei.com/schedule_policy"
_SHARE: Final = "huawei.com/scheduler.softShareDev."


def a_request(
    name: str, uid: str, product: str, chance: random.Random, traits: tuple[str, ...], *, most: int
) -> JobRequest:
    """A job for nodes of a product, as chance has it.

    Args:
        name: Its name.
        uid: Its uid.
        product: Of the nodes.
        chance: What else it asks.
        traits: What it may ask.
        most: Nodes that a job in SuperPoDs or of levels takes, at most.
    """
    size = chance.choice(SIZES[product])
    replicas = chance.choice((1, 1, 1, 2, 2, 3))
    if "simple" in traits:
        size, replicas = min(size, chance.choice((SIZES[product][0], size))), min(replicas, 2)
    known = NODE_PRODUCTS[product]
    request = a_job(name, product=product, chips=size, replicas=replicas, uid=uid)
    if product in _POLICIES:
        request = _in_superpods(request, product, chance, most)
    elif product == "soft-share":
        request = _shared(request, chance)
    elif known.resource.endswith(("310P", "310")):
        request = _inference(request, chance)
    elif product == "module910x8" and chance.random() < 0.8:
        request = _with(request, replicas=replicas if size == known.chips else 1)
    if "trees" in traits and known.resource.endswith(("910", "npu")) and chance.random() < 0.5:
        request = _in_trees(request, known.chips, chance, most)
    if "tor" in traits and chance.random() < (0.6 if "leaves" in traits else 0.05):
        request = _below_leaves(request, known.chips, chance)
    return _dressed(request, chance, traits)


def _with(request: JobRequest, *, replicas: int = 0, chips: int = -1) -> JobRequest:
    task = request.tasks[0]
    task = msgspec.structs.replace(task, replicas=replicas or task.replicas, chips=chips if chips >= 0 else task.chips)
    return msgspec.structs.replace(request, tasks=[task])


def _in_superpods(request: JobRequest, product: str, chance: random.Random, most: int) -> JobRequest:
    chips = NODE_PRODUCTS[product].chips
    block = min(chance.choice((1, 1, 2, 2, 3)), most)
    count = min(chance.choice((1, 1, 2, 3)), most // block)
    annotations = {_POLICY: _POLICIES[product], "sp-block": str(chips * block)}
    labels = dict(request.labels)
    near: dict[str, str] = {}
    pods, size = block * count, chips
    match chance.choice(("hard", "hard", "soft", "soft", "service", "mindie", "one", "memory")):
        case "soft":
            labels["super-pod-affinity"] = "soft"
        case "service":
            labels["inferserviceid"] = chance.choice(("s0", "s1"))
        case "mindie":
            labels |= {"app": "mindie", "jobID": chance.choice(("m0", "m1"))}
            annotations["sp-fit"] = chance.choice(("idlest", ""))
            near = {"app": "mindie"} if chance.random() < 0.5 else {}
        case "one":
            pods, size = 1, chance.choice((2, 4, chips))
            annotations["sp-block"] = str(size)
        case "memory":
            annotations["huawei.com/schedule_ubmemory"] = "true"
        case _:
            pass
    if product == "superpod950x8" and pods > 1 and chance.random() < 0.6:
        annotations["ra-block"] = chance.choice(("8", "16"))
    return _with(
        msgspec.structs.replace(request, annotations=annotations, labels=labels, near=near), replicas=pods, chips=size
    )


def _shared(request: JobRequest, chance: random.Random) -> JobRequest:
    labels = {
        f"{_SHARE}aicoreQuota": str(chance.choice((10, 20, 40, 55, 100))),
        f"{_SHARE}hbmQuota": str(chance.choice((1_000, 4_000, 30_000, 60_000))),
        f"{_SHARE}policy": chance.choice(("elastic", "elastic", "fixed-share", "best-effort")),
    }
    return msgspec.structs.replace(request, labels=request.labels | labels)


def _inference(request: JobRequest, chance: random.Random) -> JobRequest:
    labels = dict(request.labels)
    if chance.random() < 0.5:
        labels["npu-310-strategy"] = chance.choice(("card", "card", "chip"))
    size = request.tasks[0].chips
    if labels.get("duo") == "true" and chance.random() < 0.5:
        labels["distributed"] = "true"
        request = _with(request, replicas=1, chips=size)
    if labels.get("npu-310-strategy") == "card":
        request = _with(request, chips=min(size, 2 if labels.get("duo") == "true" else 4))
    return msgspec.structs.replace(request, labels=labels)


def _in_trees(request: JobRequest, chips: int, chance: random.Random, most: int) -> JobRequest:
    first = min(chance.choice((1, 2)), most)
    sizes = chance.choice((f"level1={first}", f"level1={first},level2={first * 2}" if most > 1 else "level1=1"))
    annotations = {_POLICY: "multilevel", "huawei.com/affinity-config": sizes}
    replicas = first * (2 if "level2" in sizes else chance.choice((1, 2)))
    request = msgspec.structs.replace(request, annotations=annotations)
    return _with(request, replicas=replicas, chips=chips)


def _below_leaves(request: JobRequest, chips: int, chance: random.Random) -> JobRequest:
    label = chance.choice(("normal-schema", "normal-schema", "large-model-schema", "large-model-schema", "null"))
    labels = request.labels | {"tor-affinity": label}
    if chance.random() < 0.4:
        labels["framework"] = chance.choice(("PyTorch", "mindspore", "TensorFlow"))
    request = msgspec.structs.replace(request, labels=labels)
    if chance.random() < 0.7 and not request.labels.get("duo"):
        request = _with(request, replicas=chance.choice((1, 2, 3, 4, 5)), chips=chips if len(labels) < 4 else -1)
    return request


def _dressed(request: JobRequest, chance: random.Random, traits: tuple[str, ...]) -> JobRequest:
    """The request with what jobs ask besides."""
    task = request.tasks[0]
    selector, labels, annotations = dict(request.node_selector), dict(request.labels), dict(request.annotations)
    if "demand" in traits and chance.random() < 0.5:
        cpu, memory = chance.choice(((30_000, 0), (100_000, 100_000), (0, 900_000), (8_000, 1_000)))
        task = msgspec.structs.replace(task, cpu_milli=cpu, memory_mib=memory)
    if "selectors" in traits:
        task, selector = _choosy(task, selector, chance)
    if "levels-of-health" in traits and chance.random() < 0.4:
        labels["subHealthyStrategy"] = chance.choice(("graceExit", "forceExit", "ignore"))
    tasks = [task]
    if "many-tasks" in traits and chance.random() < 0.4:
        tasks = _tasks(task, annotations, chance)
    request = msgspec.structs.replace(
        request,
        tasks=tasks,
        node_selector=selector,
        labels=labels,
        annotations=annotations,
        priority=chance.choice((0, 0, 1, 2)) if "priorities" in traits else 0,
        run_ms=chance.choice((0, 1, 20, 500)) if "run-times" in traits else 0,
    )
    if DISPLACING in traits:
        request = declaring(request, chance)
    if "broken" in traits and chance.random() < 0.1:
        return msgspec.structs.replace(request, node_selector=selector | {MARK: chance.choice(POINTS)})
    return _flawed(request, chance) if "flaws" in traits and chance.random() < 0.2 else request


def _choosy(task: Task, selector: dict[str, str], chance: random.Random) -> tuple[Task, dict[str, str]]:
    zone = chance.choice(ZONES)
    match chance.randint(0, 7):
        case 0:
            return task, selector | {"zone": zone}
        case 1:
            return msgspec.structs.replace(task, affinity=[Term((Expression("zone", "NotIn", (zone,)),))]), selector
        case 2:
            names = tuple(f"n{number:02}" for number in range(0, 12, 2))
            term = Term((Expression("metadata.name", "In", names),))
            return msgspec.structs.replace(task, affinity=[term]), selector
        case 3:
            return task, {}
        case _:
            tolerations = [Toleration(key="team", operator="Exists")]
            return (msgspec.structs.replace(task, tolerations=tolerations) if chance.random() < 0.5 else task), selector


def _tasks(task: Task, annotations: dict[str, str], chance: random.Random) -> list[Task]:
    """Several tasks: pods without chips, of another size, or of a gang that is requested in parts."""
    match chance.choice(("scheduler", "scheduler", "plain", "master", "other", "same", "part")):
        case "master":
            master = Task("master", chance.choice((1, 2)), 0, chance.choice((0, 1_000, 60_000)), 0)
            return [master, task] if chance.random() < 0.5 else [task, master]
        case "scheduler":
            return [Task("scheduler", 1, 0, 1_000, 1_000), task]
        case "plain":
            annotations["huawei.com/skip-ascend-plugin"] = "enabled"
            return [task, Task("driver", chance.choice((1, 2)), 0, chance.choice((0, 60_000)), 0)]
        case "other":
            return [task, msgspec.structs.replace(task, name="other", replicas=1, chips=max(1, task.chips // 2))]
        case "same":
            return [task, msgspec.structs.replace(task, name="same", replicas=task.replicas)]
        case _:
            annotations["berth/gang-pods"] = str(task.replicas + 1)
            return [task]


def _flawed(request: JobRequest, chance: random.Random) -> JobRequest:
    """A request with something wrong about it."""
    pods = sum(task.replicas for task in request.tasks)
    number = chance.randint(0, 9)
    if number == 0:
        return _with(request, chips=chance.choice((3, 5, 7, 9, 65)))
    if number == 1:
        return _with(request, replicas=40)
    flaws: dict[int, dict[str, Any]] = {
        2: {"tasks": []},
        3: {"min_available": pods + 1},
        4: {"resource": "huawei.com/Ascend910-4c"},
        5: {"resource": "nvidia.com/gpu"},
        6: {"labels": request.labels | {"subHealthyStrategy": "sometimes"}},
        7: {"labels": request.labels | {"tor-affinity": "sometimes"}},
        8: {"annotations": request.annotations | {"huawei.com/schedule_minAvailable": "many"}},
        9: {"tasks": [Task("plain", pods, 0, 1_000, 0)], "resource": ""},
    }
    return msgspec.structs.replace(request, **flaws[number])
