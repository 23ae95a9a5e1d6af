"""Leaf switches (ToR) of the ConfigMap ``basic-tor-node-cm``: the leaf of each address, and its position.

Source: docs/reference/switches.md, "Topology"; docs/reference/kubernetes.md, "Map of leaf switches".
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

CONFIG_MAP: Final = "basic-tor-node-cm"
NAMESPACE: Final = "kube-system"
TOR_INFO: Final = "tor_info"
TOR_LEVEL: Final = "tor_level"
SINGLE_LAYER: Final = "single_layer"
DOUBLE_LAYER: Final = "double_layer"
PLACES_MAX: Final = 1 << 15
"""Maximum number of servers below a leaf: the number of positions in their column."""
ADDRESS_MAX: Final = 253
"""Longest address, in characters."""
_SHOWN_MAX: Final = 80
_STEP: Final = re.compile(r"\.?([a-z_]+)|\[(\d+)\]")
_MISSING: Final = re.compile(r"missing required field `(\w+)`")
_AT: Final = re.compile(r" - at `\$\.?(.*)`$")
_ADDRESS: Final = f"a text of 1 to {ADDRESS_MAX} characters"
_EXPECTED: Final[Mapping[str, str]] = {
    "tor_count": "the most servers below a leaf, a whole number",
    "server_list": "a list of leaf switches",
    "server": "a list of servers",
    "tor_ip": _ADDRESS,
    "server_ip": _ADDRESS,
    "slice_id": "a whole number",
}


class TorConfigError(ValueError):
    """A ConfigMap that cannot be used at all.

    Attributes:
        field: Path of the wrong field.
        value: Its value, cut to 80 characters.
        expected: Valid values.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        text = "missing" if value is None else repr(value)
        self.field = field
        self.value = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
        self.expected = expected
        super().__init__(f"ConfigMap {NAMESPACE}/{CONFIG_MAP}: {field} is {self.value}: expected {expected}")


class Slot(NamedTuple):
    """Place of a server: the name of its leaf, and its position there, from 0."""

    leaf: str
    position: int


class Server(NamedTuple):
    """A server in the list of its leaf: its address, and its position from 0 (``slice_id``)."""

    address: str
    position: int


class TorLeaf(msgspec.Struct, frozen=True):
    """A leaf switch, identified by its address, and its servers in the given order, with or without a node."""

    address: str
    servers: tuple[Server, ...]


class TorConfig(msgspec.Struct, frozen=True):
    """Leaf switches of a cluster in the given order.

    Attributes:
        leaves: The leaves; none: the switches are unknown.
        places: Maximum number of servers below a leaf (``tor_count``).
        level: ``single_layer`` or ``double_layer``.
    """

    leaves: tuple[TorLeaf, ...] = ()
    places: int = 0
    level: str = DOUBLE_LAYER

    def slots(self) -> dict[str, Slot]:
        """Place of each server, by its address."""
        return {server.address: Slot(leaf.address, server.position) for leaf in self.leaves for server in leaf.servers}


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

    A missing ``tor_count`` is the length of the longest list of servers, a missing ``slice_id`` the index in the list.
    A ``tor_level`` other than ``single_layer`` means two layers. Other fields are ignored.

    Raises:
        TorConfigError: ``tor_info`` is missing, is not such JSON or lists no leaf; an address is empty, longer than 253
            characters or repeated; a leaf has more servers than ``tor_count``; a position is repeated below a leaf or
            not less than ``tor_count``; ``tor_count`` is not from 1 to 32768.
    """
    info = _decoded(data.get(TOR_INFO))
    if not info.server_list:
        raise TorConfigError(_at("server_list"), [], "at least one leaf switch")
    places = info.tor_count
    if places is None:
        places = max(1, *(len(tor.server or ()) for tor in info.server_list))
    if not 1 <= places <= PLACES_MAX:
        raise TorConfigError(_at("tor_count"), places, f"the most servers below a leaf, from 1 to {PLACES_MAX}")
    above: dict[str, str] = {}
    server_at: dict[str, str] = {}
    leaves: list[TorLeaf] = []
    for index, tor in enumerate(info.server_list):
        at = f"server_list[{index}]"
        _check_address(f"{at}.tor_ip", tor.tor_ip, above)
        leaves.append(TorLeaf(tor.tor_ip, _servers(tor, at, places, server_at)))
    level = SINGLE_LAYER if data.get(TOR_LEVEL, "").strip() == SINGLE_LAYER else DOUBLE_LAYER
    return TorConfig(tuple(leaves), places, level)


def _servers(tor: _Tor, at: str, places: int, seen: dict[str, str]) -> tuple[Server, ...]:
    """Servers of a leaf; ``seen`` has the place of each address.

    Raises:
        TorConfigError: See :func:`read_tor_config`.
    """
    taken: dict[int, str] = {}
    found: list[Server] = []
    for order, server in enumerate(tor.server or ()):
        here = f"{at}.server[{order}]"
        if order >= places:
            raise TorConfigError(
                _at(here), server.server_ip, f"nothing here: at most {places} servers below a leaf (tor_count)"
            )
        _check_address(f"{here}.server_ip", server.server_ip, seen)
        position = order if server.slice_id is None else server.slice_id
        if not 0 <= position < places:
            raise TorConfigError(_at(f"{here}.slice_id"), position, f"from 0 to {places - 1}, below tor_count")
        if position in taken:
            raise TorConfigError(_at(f"{here}.slice_id"), position, f"another one: {taken[position]} has it")
        taken[position] = here
        found.append(Server(server.server_ip, position))
    return tuple(found)


def _check_address(at: str, address: str, seen: dict[str, str]) -> None:
    """Record the place of an address.

    Raises:
        TorConfigError: It is empty, too long or repeated.
    """
    if not 1 <= len(address) <= ADDRESS_MAX:
        raise TorConfigError(_at(at), address, _ADDRESS)
    before = seen.setdefault(address, at)
    if before != at:
        raise TorConfigError(_at(at), address, f"an address of its own: {before} is the same")


def _decoded(text: str | None) -> _TorInfo:
    """The decoded JSON.

    Raises:
        TorConfigError: It is not JSON, or a value has a wrong type.
    """
    try:
        raw = msgspec.json.decode(text or "")
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise TorConfigError(TOR_INFO, text, f'JSON with "server_list"; {error}') from error
    try:
        return msgspec.convert(raw, _TorInfo)
    except msgspec.ValidationError as error:
        raise TorConfigError(*_mistyped(raw, str(error))) from error


def _mistyped(raw: Any, words: str) -> tuple[str, object, str]:  # noqa: ANN401 - any JSON
    """Path of a missing value or one of a wrong type, the value, and the expected values."""
    where = _AT.search(words)
    path = where[1] if where is not None else ""
    value, last = raw, ""
    for name, index in _STEP.findall(path):
        value = value[name] if name else value[int(index)]
        last = name
    if missing := _MISSING.search(words):
        path, value, last = (f"{path}." if path else "") + missing[1], None, missing[1]
    expected = _EXPECTED.get(last, 'a map with "tor_ip" or "server_ip"' if path else 'a map with "server_list"')
    return (_at(path) if path else TOR_INFO), value, expected


def _at(path: str) -> str:
    return f"{TOR_INFO} {path}"
