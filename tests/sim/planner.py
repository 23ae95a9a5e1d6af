"""A planner that tries everything: whether a gang that waits could be placed.

It reads facts and what attempts hold, and has rules of its own, none of the product's code: which nodes a pod may use
(readiness, cordon, drains, labels, taints, health, cpu, memory), which chips of a node go together (any of a mesh,
whole pairs, one ring or card), that all pods of a gang start together, and which leaves, SuperPoDs and racks they need
(:mod:`tests.sim.fabric`). Where the rules leave room it says no: that a gang could be placed is then certain. What is
outside of it is not judged, and counted by the reason.

Sizes are bounded (:data:`NODES_MAX`, :data:`PODS_MAX`), so that every way to place a gang is tried.

Source: docs/reference/nodes-and-chips.md, "Product forms", "Usable chips", "Rules per product".
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.state.holdings.held_places import Held
from berth.core.state.holdings.holding import Holding, owned_by
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.constraints import Expression, Taint, Term, Toleration
from berth.schemas.envelope import decode
from berth.schemas.facts import HealthSeen, NodeHealth, NodesSeen
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.refusal import NodeReason, Refusal
from berth.schemas.usage_facts import UNLIMITED, UsageSeen
from berth.schemas.volume_facts import ClaimSeen
from tests.sim.chip_choices import DUO_FORMS, DUO_LABEL, FORMS, choices, most_of
from tests.sim.fabric import BLOCK_CHIPS, SWITCH_CODES, Fabric, Seat, in_blocks, request_pods

NODES_MAX: Final = 12
PODS_MAX: Final = 6
_SWITCH_LABEL: Final = "tor-affinity"
_OTHER_RULES: Final = ("huawei.com/affinity-config", "inferserviceid", "huawei.com/schedule_ubmemory")
_MINDIE: Final = frozenset({"app", "jobID"})
_UNJUDGED_BLOCKS: Final = frozenset({"wait", "home", "incomplete"})
"""What blocks lack that depends on the places before a fault."""
_UNREADY: Final = ("NoSchedule", "NoExecute")


class Host(msgspec.Struct):
    """A node, and what is left of it.

    Attributes:
        name: Its name.
        labels: Of it.
        taints: Of it.
        free: Chips that a single pod may get, as a mask.
        network: Those of them that a pod of several may get.
        chips: All chips that are healthy, whoever has them.
        cpu_milli: Left.
        memory_mib: Left.
        resource: Of its chips.
        domain: Of its fact.
        superpod: Its SuperPoD; empty without.
        rack: Its rack; empty without.
        pods: How many more it takes.
    """

    name: str
    labels: dict[str, str]
    taints: list[Taint]
    resource: str
    free: int
    network: int
    chips: int
    cpu_milli: int
    memory_mib: int
    domain: str
    superpod: str = ""
    rack: str = ""
    pods: int = UNLIMITED


class Ask(NamedTuple):
    """A pod that wants a place."""

    task: Task
    selector: Mapping[str, str]


class Planner:
    """The cluster as facts and attempts show it at one moment.

    Args:
        facts: The newest fact of each subject.
        holdings: What attempts have.
        settings: In force.
        held: Places of attempts that are over, which are kept for the next ones; nobody gets them as far as is certain.

    Attributes:
        count: Judged gangs, and the reasons why others were not.
    """

    def __init__(
        self, facts: Mapping[str, bytes], holdings: Iterable[Holding], settings: Settings, held: Iterable[Held] = ()
    ) -> None:
        self.count: Counter[str] = Counter()
        self._settings = settings
        self._claims = _claims(facts)
        self._hosts = _hosts(facts)
        places = [[*owned_by(holding), *holding.reserved().values()] for holding in holdings]
        places += [list(one.places().values()) for one in held]
        for share in (share for shares in places for share in shares):
            host = self._hosts.get(share.node)
            if host is not None:
                host.free &= ~share.mask
                host.network &= ~share.mask
                host.cpu_milli -= share.cpu_milli
                host.memory_mib -= share.memory_mib
                host.pods -= share.pods
        self._fabric = Fabric(facts, [[share.node for share in shares] for shares in places])

    def could_place(self, request: JobRequest, refusal: Refusal, *, is_first: bool = True) -> str:
        """How a gang that was refused could be placed; empty if it cannot, or is not judged.

        Args:
            request: The gang.
            refusal: Why it waits.
            is_first: No gang that waits is before it.
        """
        outside = self._outside(request, refusal, is_first=is_first)
        if outside:
            self.count[f"not judged: {outside}"] += 1
            return ""
        self.count["judged"] += 1
        self.count[f"judged: {refusal.code}"] += 1
        if refusal.code == "no-claim":
            return ""  # it is judged only if the claim is not there
        asks = [
            Ask(task, {**request.node_selector, **task.node_selector})
            for task in request.tasks
            for _ in range(task.replicas)
        ]
        asks.sort(key=lambda ask: (-ask.task.chips, ask.task.name))
        _, gang_pods = request_pods(request)
        is_multi = gang_pods > 1
        is_empty = refusal.code == "larger-than-cluster"
        form = refusal.form
        hosts = [
            msgspec.structs.replace(host, free=host.chips if is_empty else host.network if is_multi else host.free)
            for host in self._hosts.values()
            if not request.resource or host.chips.bit_count() <= most_of(form)
            if form not in DUO_FORMS or host.labels.get(DUO_LABEL[0]) == DUO_LABEL[1]
        ]
        if _is_grouped(request, refusal):
            return self._in_groups(request, refusal, asks, hosts)
        names: list[str] = []
        found = _place(asks, hosts, request.resource, form, names, first=0)
        return f"{request.namespace}/{request.name} on {', '.join(names)}" if found else ""

    def _in_groups(self, request: JobRequest, refusal: Refusal, asks: Sequence[Ask], hosts: Iterable[Host]) -> str:
        """How pods that each get a node could get them below leaves, or in blocks; empty if they cannot."""
        if refusal.code == "no-topology":
            return f"{request.namespace}/{request.name}: there is a topology" if self._fabric.has_leaves else ""
        each = {ask.task.name: ask for ask in asks}.values()
        seats = [
            Seat(host.name, host.superpod, host.rack)
            for host in hosts
            if all(
                _admits(host, ask, request.resource) and choices(host.free, ask.task.chips, refusal.form)
                for ask in each
            )
        ]
        if refusal.form in BLOCK_CHIPS:
            found = in_blocks(request, self._settings, refusal.form, seats)
        else:
            found = self._fabric.below_leaves(request, self._settings, seats)
        return f"{request.namespace}/{request.name} on {', '.join(seat.name for seat in seats)}" if found else ""

    def _outside(self, request: JobRequest, refusal: Refusal, *, is_first: bool) -> str:
        """Why a gang is not judged; empty if it is."""
        said = {**request.labels, **request.annotations}
        tasks = request.tasks
        is_constrained = any(task.constraints is not None for task in tasks) or any(
            NodeReason.RESOURCE <= one.reason <= NodeReason.SPREAD for one in refusal.counts
        )
        is_large = sum(task.replicas for task in tasks) > PODS_MAX or len(self._hosts) > NODES_MAX
        codes = {"no-room", "larger-than-cluster", "no-blocks", "no-claim", *SWITCH_CODES}
        policy = self._settings.queue_policy
        is_plain = not all(task.chips for task in tasks)
        no_claim = refusal.code == "no-claim" and not self._lacks_claim(request)
        reasons = {
            f"refusal {refusal.code}": refusal.code not in codes,
            "a scorer is missing": bool(refusal.missing_shards),
            "not the first in a strict queue": policy == "fifo" and not is_first,
            f"pods without chips, queue policy {policy}": policy in {"easy", "conservative"} and is_plain,
            "levels and services": any(key in said for key in _OTHER_RULES) or said.keys() >= _MINDIE,
            "places before a fault": refusal.blocks is not None and refusal.blocks.rule in _UNJUDGED_BLOCKS,
            "some pods of a group without chips": _is_grouped(request, refusal) and is_plain,
            "blocks and leaves": refusal.form in BLOCK_CHIPS and _is_switched(request),
            f"form {refusal.form}": refusal.form not in FORMS,
            "a claim that is there": no_claim,
            "constraints": is_constrained and refusal.code != "no-claim",
            "too many pods or nodes": is_large,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _lacks_claim(self, request: JobRequest) -> bool:
        """Whether a claim of a pod does not exist."""
        wanted = (claim for task in request.tasks if task.constraints for claim in task.constraints.claims)
        return any((request.namespace, claim) not in self._claims for claim in wanted)


def _is_switched(request: JobRequest) -> bool:
    return request.labels.get(_SWITCH_LABEL, "null") != "null"


def _is_grouped(request: JobRequest, refusal: Refusal) -> bool:
    return refusal.form in BLOCK_CHIPS or _is_switched(request)


def _claims(facts: Mapping[str, bytes]) -> set[tuple[str, str]]:
    """Claims that exist and are not being deleted, by namespace and name."""
    claims = [decode(data, ClaimSeen) for subject, data in facts.items() if ".fact.claim." in subject]
    return {(one.namespace, one.name) for one in claims if not one.gone and not one.deleting and one.phase != "lost"}


def _place(asks: list[Ask], hosts: list[Host], resource: str, form: str, names: list[str], *, first: int) -> bool:
    """Place pods one after another, in every way; equal pods in the order of nodes."""
    if not asks:
        return True
    ask, rest = asks[0], asks[1:]
    for number in range(first, len(hosts)):
        host = hosts[number]
        if not _admits(host, ask, resource):
            continue
        for mask in choices(host.free, ask.task.chips, form):
            before = (host.free, host.cpu_milli, host.memory_mib, host.pods)
            host.free &= ~mask
            host.cpu_milli -= ask.task.cpu_milli
            host.memory_mib -= ask.task.memory_mib
            host.pods -= 1
            names.append(host.name)
            is_equal = bool(rest) and rest[0] == ask
            if _place(rest, hosts, resource, form, names, first=number if is_equal else 0):
                return True
            names.pop()
            host.free, host.cpu_milli, host.memory_mib, host.pods = before
    return False


def _admits(host: Host, ask: Ask, resource: str) -> bool:
    task = ask.task
    return (
        (not task.chips or host.resource == resource)
        and host.cpu_milli >= task.cpu_milli
        and host.memory_mib >= task.memory_mib
        and host.pods > 0
        and all(host.labels.get(key) == value for key, value in ask.selector.items())
        and (not task.affinity or any(_matches(term, host) for term in task.affinity))
        and all(
            taint.effect not in _UNREADY or any(_tolerates(one, taint) for one in task.tolerations)
            for taint in host.taints
        )
    )


def _matches(term: Term, host: Host) -> bool:
    return bool(term.expressions) and all(_holds(one, host) for one in term.expressions)


def _holds(one: Expression, host: Host) -> bool:
    value = host.name if one.key == "metadata.name" else host.labels.get(one.key)
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False  # Gt and Lt: it is not certain, so it says no


def _tolerates(one: Toleration, taint: Taint) -> bool:
    if one.effect and one.effect != taint.effect:
        return False
    if one.operator == "Exists":
        return not one.key or one.key == taint.key
    return one.key == taint.key and one.value == taint.value


# Facts.


def _hosts(facts: Mapping[str, bytes]) -> dict[str, Host]:
    """Nodes that may take work, by name, in order of names; each with all its healthy chips free."""
    found: dict[str, Host] = {}
    places: dict[tuple[str, str], set[str]] = {}
    for subject, data in facts.items():
        if ".fact.node." in subject:
            _read_nodes(decode(data, NodesSeen), found, places)
    healthy: set[str] = set()
    for subject, data in facts.items():
        if ".fact.health." in subject:
            healthy |= _read_health(decode(data, HealthSeen), found)
        elif ".fact.usage." in subject:
            _read_usage(decode(data, UsageSeen), found)
    drained = {
        (drain.kind, drain.name)
        for subject, data in facts.items()
        if ".fact.drain." in subject and not (drain := decode(data, DrainSeen)).gone
    }
    at_drained = {name for kind, place in drained for name in places.get((kind, place), {place})}
    return {name: found[name] for name in sorted(found) if name in healthy and name not in at_drained}


def _read_nodes(seen: NodesSeen, found: dict[str, Host], places: dict[tuple[str, str], set[str]]) -> None:
    names, index = unpack_names(seen.names), unpack(seen.class_index, 2)
    chips, allocatable = unpack(seen.chips, 8), unpack(seen.allocatable, 2)
    cpu, memory = unpack(seen.cpu_milli, 4), unpack(seen.memory_mib, 4)
    cpu_others, memory_others = unpack(seen.cpu_others, 4), unpack(seen.memory_others, 4)
    chips_others = unpack(seen.chips_others, 2)
    rack = unpack(seen.rack_index, 4) if seen.rack_index else [0] * len(names)
    at = [
        ("superpod", seen.superpods, unpack(seen.superpod_index, 4)),
        ("leaf", seen.leaves, unpack(seen.leaf_index, 4)),
    ]
    for row, name in enumerate(names):
        kind = seen.classes[index[row]]
        for place, table, column in at:
            if column and column[row]:
                places.setdefault((place, table[column[row] - 1]), set()).add(name)
        if kind.cordoned or not kind.ready:
            continue
        is_sure = chips[row].bit_count() <= allocatable[row] and not (chips_others and chips_others[row])
        mask = chips[row] if is_sure else 0
        found[name] = Host(
            name,
            kind.labels,
            list(kind.taints),
            kind.resource,
            mask,
            mask,
            mask,
            cpu[row] - (cpu_others[row] if cpu_others else 0),
            memory[row] - (memory_others[row] if memory_others else 0),
            seen.domain,
            *_above(seen, row, at[0][2], rack),
        )


def _above(seen: NodesSeen, row: int, superpod: Sequence[int], rack: Sequence[int]) -> tuple[str, str]:
    """SuperPoD and rack of a row; empty without."""
    in_superpod = superpod[row] if superpod else 0
    return (
        seen.superpods[in_superpod - 1] if in_superpod else "",
        seen.racks[rack[row] - 1] if rack[row] else "",
    )


def _read_health(seen: HealthSeen, found: Mapping[str, Host]) -> set[str]:
    """Take unhealthy chips away; returns the nodes that may take work.

    A node that has changed its domain has no health before the fact of the new one.
    """
    names, level = unpack_names(seen.names), unpack(seen.level, 1)
    columns = [unpack(one, 8) for one in (seen.unhealthy, seen.recovering, seen.withheld, seen.sub_healthy) if one]
    network, known = unpack(seen.network_unhealthy, 8), unpack(seen.network_known, 1)
    flapping: dict[int, int] = {}
    for one in seen.flapping:
        flapping[one.row] = flapping.get(one.row, 0) | 1 << one.chip
    healthy = set()
    for row, name in enumerate(names):
        host = found.get(name)
        if host is None or host.domain != seen.domain or level[row] != NodeHealth.OK:
            continue
        healthy.add(name)
        bad = flapping.get(row, 0)
        for column in columns:
            bad |= column[row]
        host.free &= ~bad
        host.chips = host.free & ~network[row] if known[row] else 0
        host.network = host.chips
    return healthy


def _read_usage(seen: UsageSeen, found: Mapping[str, Host]) -> None:
    """Take note of how many more pods nodes take."""
    names, others, most = unpack_names(seen.names), unpack(seen.pods, 4), unpack(seen.pods_max, 4)
    for row, name in enumerate(names):
        host = found.get(name)
        if host is not None and most:
            host.pods = min(host.pods, most[row] - (others[row] if others else 0))
