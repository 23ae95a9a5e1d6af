"""Constraints of a pod beside chips, cpu, memory, labels and taints of nodes, in the normal form of messages.

Source: Kubernetes, PodSpec; docs/reference/pod-fields.md, "PodSpec".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar, get_args

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.node_terms import term_of
from berth.formats.kubernetes.pod_spec import Affinity, ContainerPort, NodeAffinity, PodAffinity, PodSpec, Volume
from berth.formats.kubernetes.pod_terms import (
    PREFERRED,
    REQUIRED,
    pod_terms_of,
    preferred_pods_of,
    spread_of,
    weight_of,
)
from berth.formats.kubernetes.wrong_fields import WrongFieldError
from berth.schemas.pod_constraints import (
    HostPort,
    PodConstraints,
    PodTerm,
    PreferredNodes,
    PreferredPods,
    Protocol,
    SpreadTerm,
)

_T = TypeVar("_T")

ANY_ADDRESS: Final = frozenset({"", "0.0.0.0"})  # noqa: S104 - what a pod may write; nothing listens here
_PORT_MAX: Final = 65_535
_PROTOCOLS: Final = get_args(Protocol)
_REQUIRED_SPREAD: Final = "DoNotSchedule"
_PREFERRED_SPREAD: Final = "ScheduleAnyway"
_SPREADS: Final = (_REQUIRED_SPREAD, _PREFERRED_SPREAD)
_UNSHARED: Final[Mapping[str, str]] = {
    "aws_elastic_block_store": "awsElasticBlockStore",
    "gce_persistent_disk": "gcePersistentDisk",
    "iscsi": "iscsi",
    "rbd": "rbd",
}
"""Sources that two pods of a node may not share, by attribute."""


def constraints_of(
    spec: PodSpec, meta: Meta, resources: Mapping[str, int], note: Callable[[WrongFieldError], None]
) -> PodConstraints | None:
    """Constraints of a pod, as far as they can be read; None without any.

    Args:
        spec: Spec of the pod.
        meta: Its metadata: namespace, labels, and the name for claims that are made for it alone.
        resources: What it requests of resources beside chips, cpu and memory, above 0.
        note: Takes each field that is invalid, or asks for something that Berth does not do.
    """
    if spec.resource_claims:
        names = [item.name for item in spec.resource_claims]
        note(WrongFieldError("spec.resourceClaims", names, "none: dynamic resource allocation is not supported"))
    affinity = spec.affinity or Affinity()
    near, apart = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    namespace = meta.namespace

    def read(part: Callable[[], tuple[_T, ...]]) -> tuple[_T, ...]:
        try:
            return part()
        except WrongFieldError as error:
            note(error)
            return ()

    def required(name: str, found: PodAffinity) -> tuple[PodTerm, ...]:
        terms = found.required_during_scheduling_ignored_during_execution
        return read(lambda: pod_terms_of(f"spec.affinity.{name}.{REQUIRED}", terms, namespace))

    def preferred(name: str, found: PodAffinity) -> tuple[PreferredPods, ...]:
        terms = found.preferred_during_scheduling_ignored_during_execution
        return read(lambda: preferred_pods_of(f"spec.affinity.{name}.{PREFERRED}", terms, namespace))

    spread = read(lambda: _spreads(spec, meta))
    found = PodConstraints(
        affinity=required("podAffinity", near),
        anti_affinity=required("podAntiAffinity", apart),
        spread=tuple(one for when, one in spread if when == _REQUIRED_SPREAD),
        ports=_ports(spec, note),
        resources=tuple(sorted(resources.items())),
        claims=_claims(spec.volumes or (), meta.name, note),
        preferred_nodes=read(lambda: _preferred_nodes(affinity.node_affinity or NodeAffinity())),
        preferred_near=preferred("podAffinity", near),
        preferred_apart=preferred("podAntiAffinity", apart),
        preferred_spread=tuple(one for when, one in spread if when == _PREFERRED_SPREAD),
    )
    return found if found != _NONE else None


def meta_read(spec: PodSpec, meta: Meta) -> tuple[str, Mapping[str, str], str]:
    """What the constraints of a pod depend on beside its spec: namespace, labels and name, each empty if not read."""
    affinity = spec.affinity
    has_terms = affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    has_keys = any(item.match_label_keys for item in spec.topology_spread_constraints or ())
    has_own_claims = any(volume.ephemeral is not None for volume in spec.volumes or ())
    return (
        meta.namespace if has_terms else "",
        (meta.labels or {}) if has_keys else {},
        meta.name if has_own_claims else "",
    )


_NONE: Final = PodConstraints()


def _preferred_nodes(affinity: NodeAffinity) -> tuple[PreferredNodes, ...]:
    """Preferred nodes; a term without conditions prefers none.

    Raises:
        WrongFieldError: A field is invalid.
    """
    field = f"spec.affinity.nodeAffinity.{PREFERRED}"
    read = (
        PreferredNodes(
            weight_of(f"{field}[{at}].weight", item.weight), term_of(f"{field}[{at}].preference", item.preference)
        )
        for at, item in enumerate(affinity.preferred_during_scheduling_ignored_during_execution or ())
    )
    return tuple(one for one in read if one.term.expressions)


def _spreads(spec: PodSpec, meta: Meta) -> tuple[tuple[str, SpreadTerm], ...]:
    """Topology spread with what to do where it cannot be, each once.

    Raises:
        WrongFieldError: A field is invalid.
    """
    found: dict[tuple[str, SpreadTerm], None] = {}
    for at, item in enumerate(spec.topology_spread_constraints or ()):
        field = f"spec.topologySpreadConstraints[{at}]"
        if item.when_unsatisfiable not in _SPREADS:
            raise WrongFieldError(
                f"{field}.whenUnsatisfiable", item.when_unsatisfiable, f"one of {', '.join(_SPREADS)}"
            )
        found[item.when_unsatisfiable, spread_of(field, item, meta.labels or {})] = None
    return tuple(found)


def _ports(spec: PodSpec, note: Callable[[WrongFieldError], None]) -> tuple[HostPort, ...]:
    """Ports of the node that containers take for as long as the pod runs, sorted."""
    found: dict[HostPort, str] = {}
    taken: dict[tuple[int, str], dict[str, str]] = {}
    """Fields of the ports of each number and protocol, by address."""
    for field, port in _host_ports(spec):
        try:
            one = _port(field, port)
        except WrongFieldError as error:
            note(error)
            continue
        by_address = taken.setdefault((one.port, one.protocol), {})
        other = _colliding(by_address, one.address)
        if other:
            note(WrongFieldError(f"{field}.hostPort", port.host_port, f"another port than {other}.hostPort"))
        by_address.setdefault(one.address, field)
        found.setdefault(one, field)
    return tuple(sorted(found, key=lambda one: (one.port, one.protocol, one.address)))


def _host_ports(spec: PodSpec) -> Iterator[tuple[str, ContainerPort]]:
    containers = [
        (f"spec.initContainers[{at}]", container)
        for at, container in enumerate(spec.init_containers or ())
        if container.restart_policy == "Always"
    ]
    containers += [(f"spec.containers[{at}]", container) for at, container in enumerate(spec.containers or ())]
    for field, container in containers:
        for at, port in enumerate(container.ports or ()):
            yield f"{field}.ports[{at}]", port


def _port(field: str, port: ContainerPort) -> HostPort:
    """A port of the node.

    Raises:
        WrongFieldError: A field is invalid.
    """
    protocol = port.protocol or "TCP"
    if not 1 <= port.host_port <= _PORT_MAX:
        raise WrongFieldError(f"{field}.hostPort", port.host_port, f"1 to {_PORT_MAX}")
    if protocol not in _PROTOCOLS:
        raise WrongFieldError(f"{field}.protocol", protocol, f"one of {', '.join(_PROTOCOLS)}")
    address = "" if port.host_ip in ANY_ADDRESS else port.host_ip
    return HostPort(port.host_port, protocol, address)  # type: ignore[arg-type]  # one of the words of Protocol


def _colliding(fields: Mapping[str, str], address: str) -> str:
    """Field of the first port that a port with an address collides with; an empty address is all of them."""
    if not address:
        return next(iter(fields.values()), "")
    return next((field for known, field in fields.items() if known in {"", address}), "")


def _claims(volumes: Iterable[Volume], pod: str, note: Callable[[WrongFieldError], None]) -> tuple[str, ...]:
    """Names of the claims of a pod, sorted."""
    found: set[str] = set()
    for at, volume in enumerate(volumes):
        unshared = next((name for key, name in _UNSHARED.items() if getattr(volume, key) is not None), "")
        if unshared:
            expected = "a persistentVolumeClaim in its place"
            note(WrongFieldError(f"spec.volumes[{at}].{unshared}", volume.name, expected))
        if volume.persistent_volume_claim is not None:
            found.add(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.add(f"{pod}-{volume.name}")
    return tuple(sorted(found))
