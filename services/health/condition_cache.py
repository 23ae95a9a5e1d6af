"""Conditions of nodes as they were judged last, and which of them are to be judged again."""

from collections.abc import Iterable, Mapping

from berth.schemas.nodes import NodeCondition


class ConditionCache:
    """Conditions by domain and node.

    A report touches one node of a domain, so the others are not judged again for it: a fact of a domain is made of the
    conditions of all of its nodes.
    """

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, NodeCondition]] = {}
        self._due: dict[str, set[str] | None] = {}
        """Nodes to be judged again, by domain; None for all of them."""

    def __bool__(self) -> bool:
        return bool(self._due)

    def __len__(self) -> int:
        return len(self._due)

    def due(self) -> list[str]:
        """Domains whose fact is due, sorted."""
        return sorted(self._due)

    def mark(self, domain: str, nodes: Iterable[str] = ()) -> None:
        """Note that the fact of a domain is due, and which of its nodes are to be judged for it."""
        known = self._due.setdefault(domain, set())
        if known is not None:
            known.update(nodes)

    def mark_all(self, domains: Iterable[str]) -> None:
        """Note that all nodes of domains are to be judged again."""
        self._due.update(dict.fromkeys(domains))

    def take(self, domain: str, names: Iterable[str]) -> tuple[list[str], dict[str, NodeCondition]]:
        """Begin the fact of a domain: it is due no longer.

        Args:
            domain: The domain.
            names: Its nodes.

        Returns:
            The nodes to be judged, sorted, and the conditions of the others.
        """
        due = self._due.pop(domain, None)
        before = self._rows.get(domain, {})
        kept = {} if due is None else {name: before[name] for name in names if name in before and name not in due}
        return sorted(name for name in names if name not in kept), kept

    def keep(self, domain: str, rows: Mapping[str, NodeCondition]) -> None:
        """Keep the conditions of all nodes of a domain; none of a domain that is gone."""
        if rows:
            self._rows[domain] = dict(rows)
        else:
            self._rows.pop(domain, None)
