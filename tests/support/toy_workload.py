"""A kind of workload that no cluster has: all that Berth has to know of a new kind is in a module such as this one."""

from typing import Final

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pod_spec import Template
from berth.formats.kubernetes.workloads.facts import OwnerFacts, TaskFacts
from berth.formats.kubernetes.workloads.manifest_form import (
    AddTask,
    GangTerms,
    ManifestForm,
    ManifestPlaces,
    read_replicas,
)
from berth.formats.kubernetes.workloads.pod_labels import number
from berth.formats.kubernetes.workloads.port import MakesAnew, OwnerObject, Place, PodReading, WorkloadKind
from berth.formats.whole_numbers import Int32
from berth.formats.yaml_tree import Tree

NUMBER: Final = "toys.example/number"
"""Label of a pod: its number, which counts down with its name."""


class SwarmSpec(Lean, frozen=True):
    """Spec of a Swarm: bees, of which the fewest start together."""

    bees: Int32 = 0
    fewest: Int32 = 0
    mourns: bool = False
    template: Template = Template()


class Swarm(OwnerObject, frozen=True):
    """A Swarm."""

    spec: SwarmSpec = SwarmSpec()


def _facts(owner: Swarm, _: str) -> OwnerFacts:
    spec = owner.spec
    bees = TaskFacts("bee", spec.bees, has_chips=spec.template.has_chips)
    return OwnerFacts(min_count=spec.fewest, min_name="fewest", tasks=(bees,))


def _place(pod: Pod) -> Place | None:
    found = number(pod.metadata.label(NUMBER))
    return Place(local=found) if found is not None else None


def _why_not_anew(owner: Swarm, name: str) -> str:
    return f"{name} mourns each bee" if owner.spec.mourns else ""


def _read(document: Tree, add: AddTask) -> GangTerms:
    spec = document.need("spec", "a Swarm's spec")
    add(spec, "bee", read_replicas(spec, "bees", default=1), lambda index: {NUMBER: str(index), "hive": "oak"})
    return GangTerms(None, min_available=read_replicas(spec, "fewest", default=0))


SWARM: Final = WorkloadKind(
    name="Swarm",
    versions=("toys.example/v1",),
    plural="swarms",
    struct=Swarm,
    facts=_facts,
    pods=PodReading(task=lambda pod: "bee" if pod.metadata.label(NUMBER) else "", place=_place),
    makes_anew=MakesAnew(Swarm, _why_not_anew),
    manifest=ManifestForm(
        origin="swarm",
        read=_read,
        places=ManifestPlaces(tasks_of=lambda spec: [spec], names_tasks=False, replicas=("bees",), minimum=("fewest",)),
    ),
)
