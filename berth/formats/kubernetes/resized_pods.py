"""Resources of pods that were resized in place: the larger of what is wanted, allocated and in force.

A kubelet allocates and applies a resize later than the spec has it, or refuses it. Until then the node must have room
for the largest of them.

Source: Kubernetes 1.36, component-helpers, resource/helpers.go: PodRequests with UseStatusResources.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec.structs import replace

from berth.formats.kubernetes.objects import ContainerStatus, Pod, PodStatus
from berth.formats.kubernetes.pod_spec import Container, PodSpec, Requirements
from berth.formats.quantities import QuantityError, quantity
from berth.products.resources import is_npu

_Amounts: TypeAlias = Mapping[str, str | int | float]
_NONE: Final = "0"


def counted_spec(pod: Pod) -> PodSpec:
    """Spec of a pod with the resources that count; the spec itself unless it is being resized.

    Of an infeasible resize, what is allocated and in force counts, not what is wanted. Init containers count if they
    keep running. What a status has that is no quantity does not count.
    """
    spec, status = pod.spec, pod.status
    resizable = {one.name: one for one in _statuses(status) if one.resources is not None}
    if not resizable and status.resources is None:
        return spec
    wants = not _is_infeasible(status)
    containers = [_counted(one, resizable, wants=wants) for one in spec.containers or ()]
    init_containers = [
        _counted(one, resizable, wants=wants) if one.restart_policy == "Always" else one
        for one in spec.init_containers or ()
    ]
    of_pod = spec.resources
    if of_pod is not None and of_pod.requests and status.resources is not None:
        of_pod = _largest(of_pod, status.resources.requests, status.allocated_resources, wants=wants)
    if (
        containers == (spec.containers or [])
        and init_containers == (spec.init_containers or [])
        and of_pod == spec.resources
    ):
        return spec
    return replace(spec, containers=containers, init_containers=init_containers, resources=of_pod)


def _statuses(status: PodStatus) -> Iterable[ContainerStatus]:
    yield from status.container_statuses or ()
    yield from status.init_container_statuses or ()


def _is_infeasible(status: PodStatus) -> bool:
    """Whether the kubelet can never grant the resize that waits."""
    waiting = next((one for one in status.conditions or () if one.type == "PodResizePending"), None)
    return waiting is not None and waiting.reason == "Infeasible"


def _counted(container: Container, statuses: Mapping[str, ContainerStatus], *, wants: bool) -> Container:
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return container
    wanted = container.resources or Requirements()
    found = _largest(wanted, status.resources.requests, status.allocated_resources, wants=wants)
    return container if found == wanted else replace(container, resources=found)


def _largest(wanted: Requirements, actual: _Amounts | None, allocated: _Amounts | None, *, wants: bool) -> Requirements:
    """Requirements with the largest requests; chips cannot be resized.

    Args:
        wanted: Those of the spec.
        actual: Requests in force.
        allocated: Requests that the kubelet has allocated.
        wants: The requests of the spec count.
    """
    sources = [dict(wanted.requests or {}) if wants else {}, actual or {}, allocated or {}]
    keys = dict.fromkeys((*(wanted.requests or {}), *(key for source in sources for key in source)))
    requests: dict[str, str | int | float] = {}
    for key in keys:
        if is_npu(key):
            if key in (wanted.requests or {}):
                requests[key] = (wanted.requests or {})[key]
            continue
        amounts = [source[key] for source in sources if key in source]
        requests[key] = _most(amounts)
    return wanted if requests == (wanted.requests or {}) else replace(wanted, requests=requests)


def _most(amounts: list[str | int | float]) -> str | int | float:
    """The largest of some quantities, the first of equal ones.

    The first one is kept if it is none: it is that of the spec, and is refused with its field.
    """
    found: str | int | float = _NONE
    for amount in amounts:
        try:
            is_more = quantity(amount) > quantity(found)
        except QuantityError:
            return amounts[0]
        if is_more or found is _NONE:
            found = amount
    return found
