"""Leaf switches as the ConfigMap ``basic-tor-node-cm`` gives them: which address is below which leaf, and where.

Source: specification, switch affinity, section 1.1; Kubernetes contracts, section A.7.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

CONFIG_MAP: Final = "basic-tor-node-cm"
NAMESPACE: Final = "kube-system"
TOR_INFO: Final = "tor_info"
TOR_LEVEL: Final = "tor_level"
SINGLE_LAYER: Final = "single_layer"
DOUBLE_LAYER: Final = "double_layer"
POSITION_MAX: Final = (1 << 15) - 1
"""Largest position that its column holds."""
_SHOWN_MAX: Final = 80


class TorConfigError(ValueError):
    """A ConfigMap that cannot be used as a whole.

    Attributes:
        field: What is wrong.
        value: What stood there, cut to 80 characters.
        expected: What would be right.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        text = repr(value)
        self.field = field
        self.value = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
        self.expected = expected
        super().__init__(f"ConfigMap {NAMESPACE}/{CONFIG_MAP}: {field} is {self.value}: expected {expected}")


class Slot(NamedTuple):
    """Place of a node: the leaf's name, and the position below it from 0."""

    leaf: str
    position: int


class TorConfig(msgspec.Struct, frozen=True):
    """Leaf switches of a cluster. A leaf is known by its address.

    Attributes:
        leaves: Addresses of the leaves in the order given.
        slots: Place of each node by its InternalIP.
        level: ``single_layer`` or ``double_layer``.
    """

    leaves: tuple[str, ...] = ()
    slots: dict[str, Slot] = {}
    level: str = DOUBLE_LAYER


class _Server(msgspec.Struct):
    server_ip: str
    slice_id: int | None = None


class _Tor(msgspec.Struct):
    tor_ip: str
    server: list[_Server] | None = None


class _TorInfo(msgspec.Struct):
    server_list: list[_Tor]
    tor_count: int | None = None


def read_tor_config(data: Mapping[str, str]) -> TorConfig:
    """Leaf switches of the ConfigMap's ``data``.

    A position is ``slice_id``, or the place in the list where it is not given. ``tor_level`` other than
    ``single_layer`` means two layers.

    Raises:
        TorConfigError: ``tor_info`` is missing, is no such JSON or lists no leaf; an address is empty or stands twice; a
            position stands twice below a leaf or is not below ``tor_count``.
    """
    text = data.get(TOR_INFO, "")
    try:
        info = msgspec.json.decode(text, type=_TorInfo)
    except msgspec.MsgspecError as error:
        raise TorConfigError(TOR_INFO, text, f'JSON with "server_list"; {error}') from error
    if not info.server_list:
        raise TorConfigError(f"{TOR_INFO} server_list", [], "at least one leaf switch")
    if info.tor_count is not None and info.tor_count < 1:
        raise TorConfigError(f"{TOR_INFO} tor_count", info.tor_count, "the number of nodes below a leaf, at least 1")
    leaves: dict[str, None] = {}
    slots: dict[str, Slot] = {}
    for index, tor in enumerate(info.server_list):
        at = f"{TOR_INFO} server_list[{index}]"
        if not tor.tor_ip or tor.tor_ip in leaves:
            raise TorConfigError(f"{at} tor_ip", tor.tor_ip, "an address that no other leaf has")
        leaves[tor.tor_ip] = None
        _read_leaf(tor, at, info.tor_count, slots)
    level = SINGLE_LAYER if data.get(TOR_LEVEL, "").strip() == SINGLE_LAYER else DOUBLE_LAYER
    return TorConfig(tuple(leaves), slots, level)


def _read_leaf(tor: _Tor, at: str, positions: int | None, slots: dict[str, Slot]) -> None:
    """Add the nodes below a leaf to ``slots``.

    Raises:
        TorConfigError: As :func:`read_tor_config`.
    """
    taken: set[int] = set()
    bound = POSITION_MAX + 1 if positions is None else min(positions, POSITION_MAX + 1)
    for order, server in enumerate(tor.server or ()):
        here = f"{at} server[{order}]"
        if not server.server_ip or server.server_ip in slots:
            raise TorConfigError(f"{here} server_ip", server.server_ip, "an address that no other node has")
        position = order if server.slice_id is None else server.slice_id
        if not 0 <= position < bound or position in taken:
            raise TorConfigError(f"{here} slice_id", position, f"a number of its own below {bound} (tor_count)")
        taken.add(position)
        slots[server.server_ip] = Slot(tor.tor_ip, position)
