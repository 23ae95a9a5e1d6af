"""Decoders of objects of the API server: what a list or a watch contains, and everything that is derived from it."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

import msgspec

from berth.formats.ascend.bind_annotations import BoundPod, NodeCard, annotations, physical_ids, takes_whole_node
from berth.formats.ascend.block_annotations import block_of
from berth.formats.ascend.device_list import CHIPS_MAX, PodChips, available, chips_held
from berth.formats.ascend.ledger_mark import ledger_mark, mark_of
from berth.formats.ascend.mark_proofs import MarkProofs
from berth.formats.ascend.pod_annotations import BASE_DEVICE_INFOS, RACK_ID, SERVER_INDEX, SUPERPOD_ID
from berth.formats.ascend.rank_table import RankedPod, rank_tables, read_configuration, servers_of
from berth.formats.ascend.report_error import ReportError
from berth.formats.ascend.switch_annotations import state_of
from berth.formats.ascend.tor_config import TorConfigError, read_tor_config
from berth.formats.kubernetes.bound_pods import counted, identity_of, named_chips, number_in, quoted
from berth.formats.kubernetes.node_place import (
    DeviceMap,
    described_place,
    needs_report,
    outside_superpod,
    reported_place,
)
from berth.formats.kubernetes.nodes import read_node
from berth.formats.kubernetes.objects import ConfigMap, Node, Pod, PodGroup, StatusReply
from berth.formats.kubernetes.pods import PodRequirementsReader, amount_of, near_of, pod_requirements
from berth.formats.kubernetes.policies import PriorityClass, Queue
from berth.formats.kubernetes.rejections import rejection_of
from berth.formats.kubernetes.resized_pods import counted_spec
from berth.formats.kubernetes.storage import claim_of, storage_of, volume_of
from berth.formats.kubernetes.storage_objects import (
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from berth.formats.kubernetes.workloads.membership import (
    base_name,
    group_of,
    group_owner,
    membership,
    natural,
    task_order,
)
from berth.formats.kubernetes.workloads.minimum import minimum
from berth.formats.kubernetes.workloads.port import OwnerKey, OwnerObject
from berth.formats.kubernetes.workloads.registry import kinds, owner_facts
from berth.formats.manifests.preemption import Claims, is_about_preemption, preemption_of
from berth.formats.manifests.queue_names import queue_named
from berth.formats.quantities import QuantityError
from berth.formats.queues.queue_objects import queue_of_object
from berth.runtime.errors import ShellError
from berth.runtime.kube.http import BROKEN_JSON
from berth.runtime.kube.reflector import Reflector
from berth.runtime.logs import DEFAULT_LOG
from berth.services.summary.faults.other_writer import ManagedMap, other_writer
from tests.decoders.decoder import Decoder
from tests.support.clock import ManualClock

T = TypeVar("T")


class NotAnObjectError(ValueError):
    """What a reflector skips, and a client refuses: bytes that are not the object."""


_PROOFS = MarkProofs([b"key"])


def object_of(data: bytes, kind: type[T]) -> T:
    """An object as the client decodes it.

    Raises:
        NotAnObjectError: It is none.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except BROKEN_JSON as error:
        raise NotAnObjectError(f"not a {kind.__name__}: {error}") from error


def encodable(value: object) -> None:
    """Whatever is derived from an object must fit into messages and JSON."""
    msgspec.msgpack.encode(value)


def read_a_node(data: bytes) -> None:
    """Description, place and chips of a node, as inventory and binder derive them."""
    node = object_of(data, Node)
    reading = read_node(node)
    encodable((reading.node, reading.reasons))
    described_place(reading.node)
    needs_report(reading.node, reading.place)
    outside_superpod(reading.node, reading.place)
    meta = node.metadata
    card = NodeCard(
        name=meta.name,
        address=node.internal_ip,
        base_device_infos=meta.annotation(BASE_DEVICE_INFOS),
        superpod_id=meta.annotation(SUPERPOD_ID),
        server_index=meta.annotation(SERVER_INDEX),
        rack_id=meta.annotation(RACK_ID),
        chip_name=meta.label("node.kubernetes.io/npu.chip.name"),
    )
    physical_ids(card, reading.node.resource, reading.node.chips)
    devices = card.devices()
    for writes_real in (True, False):
        chips = [chip for chip in range(64) if reading.node.chips >> chip & 1]
        pod = BoundPod(
            name="a", uid="u", resource=reading.node.resource, chips=chips, predicate_ns=1, distributed=True,
            writes_real=writes_real, job="a", job_uid="u", attempt=1, rank=0,
        )  # fmt: skip
        takes_whole_node(chips, devices)
        encodable(annotations(pod, card, devices))
    encodable(available(base_device_infos=card.base_device_infos, device_list={}, pods=()))


def read_a_pod(data: bytes) -> None:
    """Requirements, gang, and annotations of a pod, as inventory and binder derive them."""
    pod = object_of(data, Pod)
    meta = pod.metadata
    ask = PodRequirementsReader().ask(pod.spec, meta)
    assert ask == pod_requirements(pod.spec, meta), "a pod asks for something else when it is asked again"
    encodable(ask)
    encodable(pod_requirements(counted_spec(pod), meta))
    rejection_of(pod)
    queue_named(meta.annotations)
    preemption = preemption_of([], [Claims(meta.labels, meta.annotations, "a pod")])
    is_about = is_about_preemption([*(meta.labels or ()), *(meta.annotations or ())])
    assert preemption is None or is_about, "something is read of a pod that says nothing"
    encodable(preemption)
    near_of(pod.spec)
    found = membership(pod)
    encodable(found)
    encodable(group_of(pod))
    natural(meta.name)
    task_order(found.task, {})
    minimum(found.key, group=None, facts=None, pod=pod, size=found.size, has_chips=bool(ask.chips))
    texts = meta.annotations or {}
    state_of(texts)
    for text in texts.values():
        mark = mark_of(text)
        assert mark is None or mark_of(ledger_mark(*mark)) == mark, "a mark differs after it was written and read"
    wrong: list[str] = []
    assert identity_of(counted(meta, _PROOFS), []) is None, "marks count without a code"
    identity = identity_of(meta, wrong)
    assert identity is None or number_in(str(identity.rank), 0) == identity.rank, "a rank is no rank any more"
    assert (number_in(meta.name, 0) or 0) >= 0, "a number below its bound"
    resource, mask = named_chips(meta, ask.resource, wrong)
    assert mask < 1 << CHIPS_MAX, "a chip that no node has"
    encodable([quoted(resource), *wrong])
    block_of(texts)
    chips_held(PodChips(meta.name, pod.status.phase, texts), ask.resource)
    configuration = next((one for one in map(read_configuration, texts.values()) if one is not None), None)
    if configuration is not None:
        ranked = RankedPod(
            name=meta.name, uid=meta.uid, node=pod.spec.node_name, host_ip=pod.status.host_ip, serial_number="",
            rank=found.rank or 0, configuration=configuration,
        )  # fmt: skip
        encodable(rank_tables(servers_of([ranked])))


def read_a_group(data: bytes) -> None:
    """Name and minimum of the gang of a PodGroup."""
    group = object_of(data, PodGroup)
    pod = Pod(metadata=msgspec.structs.replace(group.metadata, annotations={"scheduling.k8s.io/group-name": "g"}))
    key = membership(pod).key
    base_name(key, group)
    group_owner(group)
    encodable(minimum(key, group=group, facts=None, pod=pod, size=None, has_chips=True))
    for name, value in (group.spec.min_resources or {}).items():
        try:
            amount_of(name, value)
        except QuantityError as error:
            str(error).encode()


def read_an_owner(kind: type[OwnerObject], data: bytes) -> None:
    """Facts of an owner, and the minimum of its gang."""
    owner: OwnerObject = object_of(data, kind)
    for name, known in kinds().named.items():
        if known.struct is not kind:
            continue
        facts = owner_facts(OwnerKey(name, "default", "a", "workers"), owner)
        encodable(facts)
        pod = Pod(metadata=owner.metadata)
        key = membership(pod).key
        encodable(minimum(key, group=None, facts=facts, pod=pod, size=None, has_chips=True))


def read_a_claim(data: bytes) -> None:
    """Fact of a claim."""
    encodable(claim_of(object_of(data, PersistentVolumeClaim)))


def read_a_volume(data: bytes) -> None:
    """Fact of a volume."""
    encodable(volume_of(object_of(data, PersistentVolume)))


class _Storage(msgspec.Struct):
    kind: StorageClass
    capacities: list[CsiStorageCapacity] = []
    node: CsiNode = CsiNode()


def read_a_class(data: bytes) -> None:
    """Fact of a storage class with its capacities, and the limits of a node."""
    found = object_of(data, _Storage)
    encodable(storage_of(found.kind, has_capacity=True, capacities=found.capacities))
    encodable(found.node.limits)


def read_switches_map(data: bytes) -> None:
    """Leaf switches of a ConfigMap."""
    encodable(read_tor_config(object_of(data, ConfigMap).data or {}))


def read_device_map(data: bytes) -> None:
    """Place of a node in the ConfigMap of its device plug-in."""
    encodable(reported_place(object_of(data, DeviceMap).text))


def read_a_queue(data: bytes) -> None:
    """A queue."""
    encodable(queue_of_object(object_of(data, Queue)))


def read_plain(kind: type[T], data: bytes) -> None:
    """An object from which nothing else is derived."""
    encodable(object_of(data, kind))


def read_managed_map(data: bytes) -> None:
    """Another client that writes a ConfigMap."""
    other_writer(object_of(data, ManagedMap), ["fault-node", "remain-retry-times"])


class _Handler:
    """Takes objects and does nothing."""

    def replace(self, objects: list[Pod]) -> None: ...

    def change(self, changes: list[tuple[Any, Pod]]) -> None: ...


def _reflector() -> Reflector[Pod]:
    unused: Any = None
    return Reflector(
        unused, "/api/v1/pods", Pod, _Handler(), params={}, is_optional=False, clock=ManualClock(),
        rng=Random(1), log=DEFAULT_LOG,  # noqa: S311 - of pauses
    )  # fmt: skip


def read_lines(data: bytes) -> None:
    """Lines of a watch. An error ends the watch.

    Raises:
        ShellError: The error.
    """
    changes, fault = _reflector()._read(data.splitlines())
    encodable([(kind, one) for kind, one in changes])
    if fault is not None:
        raise fault


def read_page(data: bytes) -> None:
    """A page of a list.

    Raises:
        ShellError: It is none.
    """
    encodable(_reflector()._decoded_page(data))


def _objects(name: str, read: Callable[[bytes], object], *errors: type[Exception]) -> Decoder:
    return Decoder(f"kube-{name}", read, (NotAnObjectError, *errors), "json")


DECODERS: Final = (
    _objects("node", read_a_node),
    _objects("pod", read_a_pod),
    _objects("podgroup", read_a_group),
    *(
        _objects(kind.__name__.lower(), partial(read_an_owner, kind))
        for kind in dict.fromkeys(known.struct for known in kinds().named.values())
    ),
    _objects("claim", read_a_claim),
    _objects("volume", read_a_volume),
    _objects("storageclass", read_a_class),
    _objects("device-map", read_device_map, ReportError),
    _objects("switches-map", read_switches_map, TorConfigError),
    _objects("queue", read_a_queue),
    _objects("managed-map", read_managed_map),
    *(_objects(kind.__name__.lower(), partial(read_plain, kind)) for kind in (PriorityClass, StatusReply)),
    Decoder("kube-watch", read_lines, (ShellError,), "json"),
    Decoder("kube-list", read_page, (ShellError,), "json"),
)
