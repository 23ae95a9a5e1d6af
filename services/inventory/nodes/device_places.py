"""Places of nodes in SuperPoDs that only the reports of their device plug-ins tell. Pure.

What a node's own object says counts; a report fills what is left open there. A report that cannot be read leaves the last
good one in force, and one that is deleted leaves what it said: a node does not leave its SuperPoD because an agent stops.
So it is over a restart: what was said of a node holds until its object or its report tells.
"""

from collections.abc import Iterable

from berth.formats.ascend.report_error import ReportError
from berth.formats.kubernetes.node_place import NodePlace, homeless, needs_report, reported_place, said_place
from berth.formats.kubernetes.nodes import NodeReading
from berth.schemas.nodes import NodeDescription

_UNKNOWN_PLACE = NodePlace()


class DevicePlaces:
    """What reports tell of places, and the nodes that need it."""

    def __init__(self) -> None:
        self._open: dict[str, NodeReading] = {}
        """Nodes whose objects leave something open."""
        self._places: dict[str, NodePlace] = {}
        self._wrong: dict[str, str] = {}
        self._published: dict[str, NodePlace] = {}
        """What earlier runs said of nodes that neither object nor report has told of since."""

    def restore(self, nodes: Iterable[NodeDescription]) -> None:
        """Take up what earlier runs said."""
        self._published |= {node.name: place for node in nodes if (place := said_place(node)) is not None}

    def keep(self, names: set[str]) -> None:
        """Take which nodes there are: what was said of others does not count any more."""
        self._published = {name: place for name, place in self._published.items() if name in names}

    @property
    def is_needed(self) -> bool:
        """Whether some node needs its report."""
        return bool(self._open)

    def complete(self, reading: NodeReading) -> NodeReading:
        """A node that was just read, with what its report tells."""
        name = reading.node.name
        if needs_report(reading.node, reading.told):
            self._open[name] = reading
            place = reading.told.filled(self._places.get(name, self._published_place(name, reading.told)))
            return reading.at(place, self._wrong.get(name, ""), homeless(reading.node, place))
        self._open.pop(name, None)
        self._published.pop(name, None)
        return reading.at(reading.told, homeless(reading.node, reading.told))

    def _published_place(self, name: str, told: NodePlace) -> NodePlace:
        """What was said; racks are numbered in each SuperPoD anew, so that of another one says nothing."""
        said = self._published.get(name, _UNKNOWN_PLACE)
        return said if told.superpod in {None, said.superpod} else _UNKNOWN_PLACE

    def take(self, name: str, text: str) -> NodeReading | None:
        """Take a report of a node; the node as it is now, where it needs the report."""
        try:
            self._places[name] = reported_place(text)
            self._wrong.pop(name, None)
            self._published.pop(name, None)
        except ReportError as error:
            is_known = name in self._places or name in self._published
            self._wrong[name] = f"{error}; the report before counts" if is_known else str(error)
        reading = self._open.get(name)
        return self.complete(reading) if reading is not None else None

    def leave(self, name: str) -> None:
        """Take that a node is gone; its report is kept, for it may outlast the node's object."""
        self._open.pop(name, None)
        self._published.pop(name, None)

    def drop(self, name: str) -> None:
        """Take that a report was deleted: what it said of a node that needs it is kept."""
        if name not in self._open:
            self._places.pop(name, None)
            self._wrong.pop(name, None)
