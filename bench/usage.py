"""``usage``: facts about what pods use of nodes, at 5,000 nodes with 30 pods each of another scheduler."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from bench.report import Report, Row, machine, row
from berth.core.cluster.domains import domains
from berth.formats.kubernetes.objects import Node, Pod
from berth.formats.kubernetes.pods import PodRequirementsReader
from berth.schemas.constraints import Expression
from berth.schemas.envelope import encode
from berth.schemas.nodes import NodeDescription
from berth.schemas.pod_constraints import LabelSelector, PodConstraints, PodTerm
from berth.schemas.usage_facts import UsageSeen
from berth.services.inventory.pod_rows import read_row
from berth.services.inventory.usage.collection import Usage

_PODS_PER_NODE: Final = 30
_APPS: Final = 300
_ZONE = "topology.kubernetes.io/zone"


class Size(NamedTuple):
    """Size of a run: nodes with 30 pods each, and pods that leave."""

    nodes: int = 5_000
    repeats: int = 11


FULL: Final = Size()
SMALL: Final = Size(nodes=100, repeats=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for case, constraints in (
        ("no selector", None),
        ("one key", PodConstraints(anti_affinity=(_term("app"),))),
        ("two keys, one unique per pod", PodConstraints(anti_affinity=(_term("app"), _term("pod-name")))),
    ):
        rows += _measured(case, constraints, size)
    return Report(bench="usage", machine=machine(), rows=rows)


def _measured(case: str, constraints: PodConstraints | None, size: Size) -> list[Row]:
    names = [f"node-{index:05d}" for index in range(size.nodes)]
    domain_of = {name: domain for domain, members in domains(map(NodeDescription, names)).items() for name in members}
    usage, asks = Usage(), PodRequirementsReader()
    usage.note_selectors("waits", constraints)
    usage.replace_nodes(_node(name) for name in names)
    pods = [_pod(at, size.nodes) for at in range(size.nodes * _PODS_PER_NODE)]

    def read() -> None:
        for pod in pods:
            found = read_row(pod, asks)
            if found is not None:
                usage.put(found, is_own=False)

    reading = _cpu_ms(read)
    facts: list[UsageSeen] = []

    def pack() -> None:
        facts.extend(usage.due(domain_of, 0))

    packing = _cpu_ms(pack)
    sizes = [len(encode(fact)) for fact in facts]
    for fact in facts:
        usage.note_published(fact)
    changes, bytes_after = [], []
    for repeat in range(size.repeats):
        uid = f"uid-{repeat * 4_001 % len(pods)}"
        usage.drop(uid)
        facts.clear()
        changes.append(_cpu_ms(pack))
        bytes_after.append(float(sum(len(encode(fact)) for fact in facts)))
        for fact in facts:
            usage.note_published(fact)
    return [
        row(case, "read all pods, CPU", "ms", [reading]),
        row(case, "pack all facts, CPU", "ms", [packing]),
        row(case, "facts", "number", [len(sizes)]),
        row(case, "bytes of all facts", "bytes", [sum(sizes)]),
        row(case, "bytes of the largest fact", "bytes", [max(sizes)]),
        row(case, "one pod leaves: pack, CPU", "ms", changes),
        row(case, "one pod leaves: bytes", "bytes", bytes_after),
    ]


def _cpu_ms(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1000


def _term(key: str) -> PodTerm:
    return PodTerm(_ZONE, LabelSelector((Expression(key, "Exists"),)), ("default",))


def _node(name: str) -> Node:
    amounts = {"cpu": "192", "memory": "1500Gi", "pods": "110", "ephemeral-storage": "800Gi", "hugepages-2Mi": "8Gi"}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": amounts}}, Node)


def _pod(at: int, nodes: int) -> Pod:
    """Pod ``at``: one of 300 applications in 20 namespaces; every tenth has a claim, every fiftieth a host port."""
    app = at % _APPS
    spec: dict[str, object] = {"nodeName": f"node-{at % nodes:05d}"}
    box: dict[str, object] = {"name": "main", "resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}}
    if at % 50 == 0:
        box["ports"] = [{"containerPort": 9100, "hostPort": 9100}]
    if at % 10 == 0:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{at}"}}]
    labels = {"app": f"app-{app}", "pod-template-hash": f"{app:08x}", "pod-name": f"pod-{at}"}
    metadata = {"name": f"pod-{at}", "namespace": f"team-{app % 20}", "uid": f"uid-{at}", "labels": labels}
    tree = {"metadata": metadata, "spec": {**spec, "containers": [box]}, "status": {"phase": "Running"}}
    return msgspec.convert(tree, Pod)
