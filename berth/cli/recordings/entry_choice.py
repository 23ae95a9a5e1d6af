"""Which entries of a log are about a job or a node, and what of them."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from berth.core.chips.picking import ids_of
from berth.core.cluster.node_packing import pack_health, pack_nodes, unpack_health, unpack_nodes
from berth.core.text import ranges
from berth.schemas.columns import unpack_names
from berth.schemas.facts import HealthSeen, JobSeen, MembersSeen, NodeHealth, NodesSeen, OutcomeSeen, PodsSeen
from berth.schemas.fault_facts import DrainSeen, GroupSeen, ReplacementsSeen
from berth.schemas.ledger import Round
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.placement import Placement


class Chosen(NamedTuple):
    """What of an entry is wanted.

    Attributes:
        body: The message without the rest.
        words: What a line says of it; empty: what a line says of the message.
    """

    body: Message
    words: str = ""


class EntryChoice:
    """Entries about a job, or about a node and the jobs there; all entries without either.

    Args:
        job: ``namespace/name``; empty for all.
        node: Name of the node; empty for all.
    """

    def __init__(self, job: str = "", node: str = "") -> None:
        self._job = job
        self._node = node
        self._uids: dict[str, None] = {}
        """Of jobs that are wanted."""
        self._known: dict[str, NodeDescription | NodeCondition | None] = {}
        """Last description and last condition of the node, by domain and kind."""

    def learn(self, uid: str, job: str, placement: Placement | None) -> None:
        """Note where a job is."""
        if self._wants(job) and self._is_on_node(placement):
            self._uids[uid] = None

    def of(self, body: Message) -> Chosen | None:
        """What of a message is wanted; None for nothing.

        Raises:
            ValueError: A column of it is damaged.
        """
        if not self._job and not self._node:
            return Chosen(body)
        match body:
            case Round():
                return self._of_round(body)
            case JobSeen() | OutcomeSeen():
                is_wanted = self._is_job(f"{body.namespace}/{body.name}", body.uid)
            case PodsSeen():
                is_there = not self._node or self._node in unpack_names(body.nodes)
                is_wanted = self._wants(f"{body.namespace}/{body.gang}") and is_there
            case MembersSeen() | ReplacementsSeen():
                is_wanted = self._is_job(f"{body.namespace}/{body.job}")
            case GroupSeen():
                is_wanted = self._is_job(f"{body.namespace}/{body.name}")
            case DrainSeen():
                is_wanted = not self._job and (body.kind, body.name) == ("node", self._node)
            case NodesSeen() | HealthSeen():
                return self._of_domain(body) if not self._job else None
            case _:
                return None
        return Chosen(body) if is_wanted else None

    def _of_round(self, body: Round) -> Chosen | None:
        for verdict in body.verdicts:
            self.learn(verdict.uid, f"{verdict.namespace}/{verdict.name}", verdict.placement)
        for one in body.adoptions:
            self.learn(one.uid, f"{one.namespace}/{one.gang}", one.placement)
        found = msgspec.structs.replace(
            body,
            verdicts=[one for one in body.verdicts if self._is_job(f"{one.namespace}/{one.name}", one.uid)],
            adoptions=[one for one in body.adoptions if one.uid in self._uids],
            evictions=[one for one in body.evictions if one.uid in self._uids],
            releases=[one for one in body.releases if one.uid in self._uids],
            recoveries=[one for one in body.recoveries if self._is_job(f"{one.namespace}/{one.name}", one.uid)],
            held=[one for one in body.held if one.uid in self._uids],
            reserved=[one for one in body.reserved if self._is_job(f"{one.namespace}/{one.name}", one.uid)],
            corrections=[one for one in body.corrections if one.uid in self._uids],
            admissions=[
                one for one in body.admissions if self._wants(f"{one.namespace}/{one.name}") and not self._node
            ],
            missing=[],
        )
        parts = (found.verdicts, found.adoptions, found.evictions, found.releases, found.recoveries, found.held)
        return Chosen(found) if any((*parts, found.reserved, found.corrections, found.admissions)) else None

    def _of_domain(self, body: NodesSeen | HealthSeen) -> Chosen | None:
        """The node in a fact of its domain, if it is another than in the fact before."""
        rows: Iterable[NodeDescription | NodeCondition]
        rows = unpack_nodes(body) if isinstance(body, NodesSeen) else unpack_health(body)
        now = next((row for row in rows if row.name == self._node), None)
        key = f"{body.KIND} {body.domain}"
        before = self._known.get(key)
        self._known[key] = now
        if now == before or (
            isinstance(now, NodeCondition) and isinstance(before, NodeCondition) and _same(now, before)
        ):
            return None
        if isinstance(now, NodeCondition) and isinstance(body, HealthSeen):
            return Chosen(pack_health(body.domain, [now], source=body.source, at_ms=body.at_ms), _health_words(now))
        if isinstance(now, NodeDescription):
            return Chosen(pack_nodes(body.domain, [now], at_ms=body.at_ms), _node_words(now))
        gone = pack_nodes(body.domain, [], at_ms=body.at_ms)
        return Chosen(gone, f"node {self._node} is gone") if isinstance(body, NodesSeen) else None

    def _is_job(self, job: str, uid: str = "") -> bool:
        return (self._wants(job) and not self._node) or (bool(uid) and uid in self._uids)

    def _wants(self, job: str) -> bool:
        return self._job in {"", job}

    def _is_on_node(self, placement: Placement | None) -> bool:
        return not self._node or (placement is not None and self._node in placement.names())


def _same(now: NodeCondition, before: NodeCondition) -> bool:
    """Whether two conditions differ in the time of their report alone."""
    return msgspec.structs.replace(now, updated_ms=before.updated_ms) == before


def _health_words(now: NodeCondition) -> str:
    masks = (("unhealthy", now.unhealthy), ("recovering", now.recovering), ("network-unhealthy", now.network_unhealthy))
    parts = [] if now.level == NodeHealth.OK else [now.level.name.lower().replace("_", "-")]
    parts += [f"chips {ranges(ids_of(mask))} {word}" for word, mask in masks if mask]
    return f"health of {now.name}: {', '.join(parts) or 'ok'}{f' ({now.reason})' if now.reason else ''}"


def _node_words(now: NodeDescription) -> str:
    parts = ["ready" if now.ready else "not ready", *(["cordoned"] if now.cordoned else [])]
    return f"node {now.name}: {', '.join(parts)}, {now.allocatable} chips allocatable"
