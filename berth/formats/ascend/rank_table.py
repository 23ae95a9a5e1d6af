"""Rank table of a running job, ``hccl.json``, as the fabric controller and the collective library read it.

The bytes are those of the reference implementation: the same order of fields, no blanks, the same escapes.

Source: docs/reference/kubernetes.md, "CheckCode" and "Rank table of the job summary".
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from berth.formats.whole_numbers import Int64

CHUNK_BYTES_MAX: Final = 800 * 1024
"""Maximum size of a rank table in one ConfigMap, in bytes."""
INITIALIZING: Final = '{"status":"initializing"}'
"""Rank table of a job whose pods do not all run."""
_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


class ConfiguredDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chip in the device configuration of a pod."""

    device_id: str
    device_ip: str = ""
    super_device_id: str = ""


class Configuration(msgspec.Struct, frozen=True):
    """Device configuration of a pod: value of its annotation ``ascend-910-configuration``.

    Source: docs/reference/kubernetes.md, "Pod annotations".
    """

    pod_name: str = ""
    server_id: str = ""
    host_ip: str = ""
    super_pod_id: Int64 = -2
    devices: list[ConfiguredDevice] = []


class RankedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with chips, as far as the rank table contains it."""

    name: str
    uid: str
    node: str
    host_ip: str
    serial_number: str
    rank: int
    """Rank of the pod in its gang."""
    configuration: Configuration
    container_ids: Mapping[str, str] = {}
    """Id of each container by its name."""


class _Device(msgspec.Struct, frozen=True, omit_defaults=True):
    device_id: str
    device_ip: str
    rank_id: str
    super_device_id: str = ""


class Server(msgspec.Struct, frozen=True):
    """Entry of the rank table: one pod and its chips."""

    device: list[_Device]
    server_id: str
    host_ip: str
    super_pod_id: int
    server_name: str
    server_sn: str
    pod_name: str
    container_ids: dict[str, str]


class _Table(msgspec.Struct, frozen=True):
    status: str
    server_list: list[msgspec.Raw]
    server_count: str
    total: int


def read_configuration(text: str) -> Configuration | None:
    """Device configuration of a pod; None if the text is not one, or names no chips."""
    try:
        found = msgspec.json.decode(text, type=Configuration)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return found if found.devices else None


def servers_of(pods: Sequence[RankedPod]) -> list[Server]:
    """Entries for pods, in order of their first rank.

    A server is named by the address of its host if no two pods share a node, otherwise by the uid of the pod.
    """
    alone = len({pod.node for pod in pods}) == len(pods)
    ranked = sorted(pods, key=lambda pod: (pod.rank * len(pod.configuration.devices), pod.name))
    return [_server(pod, pod.host_ip if alone else pod.uid) for pod in ranked]


def _server(pod: RankedPod, server_id: str) -> Server:
    devices = pod.configuration.devices
    first = pod.rank * len(devices)
    return Server(
        device=[
            _Device(device.device_id, device.device_ip, str(first + index), device.super_device_id)
            for index, device in enumerate(devices)
        ],
        server_id=server_id,
        host_ip=pod.host_ip,
        super_pod_id=pod.configuration.super_pod_id,
        server_name=pod.node,
        server_sn=pod.serial_number,
        pod_name=pod.name,
        container_ids=dict(sorted(pod.container_ids.items())),
    )


def rank_tables(servers: Sequence[Server], *, bytes_max: int = CHUNK_BYTES_MAX) -> list[str]:
    """The rank table, split into texts with as many entries as fit; at least one text.

    Args:
        servers: Entries in order.
        bytes_max: Maximum size of a text, in bytes; a larger entry has a text of its own.
    """
    entries = [_encoded(server) for server in servers]
    ends = list(accumulate(len(entry) + 1 for entry in entries))
    total = 1
    while True:  # each text contains the number of texts, whose digits need space
        parts = _parts(ends, bytes_max - len(_text([], len(servers), total)))
        if len(str(len(parts))) <= len(str(total)):
            return [_text(entries[start:end], len(servers), len(parts)).decode() for start, end in parts]
        total = len(parts)


def _parts(ends: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Ranges of entries that fit into ``room`` bytes with their commas, each as long as possible."""
    parts: list[tuple[int, int]] = []
    start = before = 0
    for index, end in enumerate(ends):
        if index > start and end - before - 1 > room:
            parts.append((start, index))
            start, before = index, ends[index - 1]
    parts.append((start, len(ends)))
    return parts


def _text(entries: Sequence[bytes], servers: int, total: int) -> bytes:
    return msgspec.json.encode(_Table("complete", [msgspec.Raw(entry) for entry in entries], str(servers), total))


def _encoded(server: Server) -> bytes:
    return msgspec.json.encode(server).decode().translate(_ESCAPES).encode()
