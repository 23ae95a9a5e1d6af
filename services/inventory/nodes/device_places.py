"""Places of nodes in SuperPoDs from the reports of their device plug-ins. Pure.

The node's own object takes precedence; a report fills the fields that the object leaves open. An unreadable report
leaves the last valid one in force, and the content of a deleted report stays in force: a node does not leave its
SuperPoD because an agent stops. The same holds over a restart: the published place of a node holds until its object or
its report states one.
"""

from collections.abc import Iterable

from berth.formats.ascend.report_error import ReportError
from berth.formats.kubernetes.node_place import (
    NodePlace,
    described_place,
    needs_report,
    outside_superpod,
    reported_place,
)
from berth.formats.kubernetes.nodes import NodeReading
from berth.schemas.nodes import NodeDescription

_UNKNOWN = NodePlace()


class DevicePlaces:
    """Places from reports, and the nodes that need one."""

    def __init__(self) -> None:
        self._open: dict[str, NodeReading] = {}
        """Nodes whose objects leave a field open."""
        self._places: dict[str, NodePlace] = {}
        self._wrong: dict[str, str] = {}
        self._published: dict[str, NodePlace] = {}
        """Published places of nodes for which neither object nor report has stated a place since the restart."""

    def restore(self, nodes: Iterable[NodeDescription]) -> None:
        """Restore the places that earlier runs published."""
        self._published |= {node.name: place for node in nodes if (place := described_place(node)) is not None}

    def keep(self, names: set[str]) -> None:
        """Take the names of all nodes: published places of other nodes are dropped."""
        self._published = {name: place for name, place in self._published.items() if name in names}

    @property
    def is_needed(self) -> bool:
        """Whether some node needs its report."""
        return bool(self._open)

    def complete(self, reading: NodeReading) -> NodeReading:
        """Complete a node that was just read with the content of its report."""
        name = reading.node.name
        if needs_report(reading.node, reading.place):
            self._open[name] = reading
            place = reading.place.filled(self._places.get(name, self._published_place(name, reading.place)))
            return reading.at(place, self._wrong.get(name, ""), outside_superpod(reading.node, place))
        self._open.pop(name, None)
        self._published.pop(name, None)
        return reading.at(reading.place, outside_superpod(reading.node, reading.place))

    def _published_place(self, name: str, place: NodePlace) -> NodePlace:
        """Published place. Racks are numbered within a SuperPoD, so that the rack of another SuperPoD is not used."""
        published = self._published.get(name, _UNKNOWN)
        return published if place.superpod in {None, published.superpod} else _UNKNOWN

    def note_report(self, name: str, text: str) -> NodeReading | None:
        """Take a report of a node; returns the updated node when it needs the report."""
        try:
            self._places[name] = reported_place(text)
            self._wrong.pop(name, None)
            self._published.pop(name, None)
        except ReportError as error:
            is_known = name in self._places or name in self._published
            self._wrong[name] = f"{error}; the previous report stays in force" if is_known else str(error)
        reading = self._open.get(name)
        return self.complete(reading) if reading is not None else None

    def leave(self, name: str) -> None:
        """Take the deletion of a node; its report is kept, because it may outlive the node's object."""
        self._open.pop(name, None)
        self._published.pop(name, None)

    def drop(self, name: str) -> None:
        """Take the deletion of a report: its content is kept for a node that needs it."""
        if name not in self._open:
            self._places.pop(name, None)
            self._wrong.pop(name, None)
