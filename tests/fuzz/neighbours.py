"""Pods of other schedulers on the nodes of a history, limits of the nodes, and the facts of usage that tell of them.

What is and what was told differ: a fact may come late, in another order than what it tells of happened, or never. A
node may be in facts of several domains, or of none.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from berth.core.state.ledger import Holding
from berth.schemas.message import Message
from berth.schemas.pod_constraints import PodConstraints
from berth.schemas.usage_facts import UNLIMITED, NamespaceSeen, RankName
from tests.fuzz.constraint_draws import APPS, NAMESPACES, RESOURCES, TEAMS, amounts, claims, ports, terms
from tests.fuzz.storage import DRIVERS
from tests.support.constraint_worlds import NONE, OneNode, OnePod, usage_of

Told = Iterator[tuple[str, Message]]
_DOMAINS: Final = ("u0", "u1", "u2")
_PODS_MAX: Final = 5
_POD_LIMITS: Final = (UNLIMITED, *(110,) * 9, 6, 3, 0)


class Usage(NamedTuple):
    """What a fact of usage told."""

    nodes: Sequence[OneNode]
    pods: Sequence[OnePod]
    relabelled: Mapping[RankName, OnePod]


class Neighbours:
    """What is beside the pods of Berth, and what the facts have said of it.

    Args:
        names: All nodes that are ever there.
        traits: What there is.
    """

    def __init__(self, names: Sequence[str], traits: tuple[str, ...]) -> None:
        self._names = names
        self._traits = traits
        self._pods: dict[str, OnePod] = {}
        self._relabelled: dict[RankName, OnePod] = {}
        self._limits = {name: OneNode(name) for name in names}
        self._domains: dict[str, set[str]] = {domain: set() for domain in _DOMAINS}
        self._dirty: set[str] = set()
        self.told: dict[str, Usage] = {}
        """What the facts of usage say now, by domain."""
        self.namespaces: dict[str, dict[str, str]] = {}
        """What the facts say of labels."""
        self.happened: list[str] = []
        """What the last step was, in the words of the tally."""

    def begin(self) -> Told:
        """Facts with which a cell begins: one node in five is in no fact."""
        chance = random.Random(len(self._names))  # noqa: S311  # the same for the same cell
        if "usage" not in self._traits:
            return
        for number, name in enumerate(self._names):
            self._limits[name] = self._limited(name, chance)
            if number % 5 < 4:
                self._domains[_DOMAINS[number % 2]].add(name)
        for domain in _DOMAINS[:2]:
            yield self._tell(domain)

    def usage(self, two: int, held: Sequence[Holding], chance: random.Random) -> Told:
        """Something changes on a node; a fact tells of it, or of something else that changed before, or nothing does.

        Args:
            two: What.
            held: What Berth has placed.
            chance: Everything else.
        """
        self.happened = []
        if "usage" not in self._traits:
            return
        name = chance.choice(self._names)
        self._change(two % 20, name, held, chance)
        self._dirty |= {domain for domain, names in self._domains.items() if name in names}
        if chance.random() < 0.2:
            self.happened.append("late")
            return
        for domain in sorted(self._dirty):
            if chance.random() < 0.8:
                yield self._tell(domain)

    def namespace(self, one: int, two: int) -> Told:
        """A namespace has other labels, or is gone."""
        name = NAMESPACES[one % len(NAMESPACES)]
        if two % 4 == 0:
            self.namespaces.pop(name, None)
            yield f"namespace.{name}", NamespaceSeen(name, gone=True)
        else:
            labels = {"team": TEAMS[two % 2]} if two % 5 else {}
            self.namespaces[name] = labels
            yield f"namespace.{name}", NamespaceSeen(name, labels)

    def _change(self, what: int, name: str, held: Sequence[Holding], chance: random.Random) -> None:
        pods = sorted(self._pods)
        match what:
            case 0 | 1 | 2 if pods:
                self._change_pod(chance.choice(pods), chance)
            case 3:
                self.happened.append("limits")
                self._limits[name] = self._limited(name, chance)
            case 4 | 5:
                self._move(name, chance)
            case 6:
                domain = chance.choice(_DOMAINS)
                self.happened.append("domain is gone")
                self._dirty.add(domain)
                self._domains[domain].clear()
            case 7 | 8 | 9 if held:
                self._relabel(chance.choice(held), chance)
            case _:
                self._come(name, chance)

    def _come(self, name: str, chance: random.Random) -> None:
        """A pod comes to a node, and another one goes if there are many."""
        if len(self._pods) >= _PODS_MAX:
            gone = self._pods.pop(chance.choice(sorted(self._pods)))
            self._mark(gone.node)
            self.happened.append("pod leaves")
        self.happened.append("pod comes")
        number = next(number for number in range(_PODS_MAX) if f"p{number}" not in self._pods)
        wanted = NONE
        if chance.random() < 0.6:
            wanted = PodConstraints(
                anti_affinity=terms(chance) if chance.random() < 0.4 else (),
                ports=ports(chance) if chance.random() < 0.3 else (),
                resources=amounts(chance) if chance.random() < 0.3 else (),
                claims=claims(chance) if "volumes" in self._traits and chance.random() < 0.5 else (),
            )
        self._pods[f"p{number}"] = OnePod(name, chance.choice(("default", *NAMESPACES)), _labels(chance), wanted)

    def _change_pod(self, key: str, chance: random.Random) -> None:
        pod = self._pods[key]
        self._mark(pod.node)
        match chance.randint(0, 3):
            case 0:
                self.happened.append("pod is being deleted")
                self._pods[key] = OnePod(pod.node, pod.namespace, pod.labels, pod.constraints, ending=True)
            case 1:
                self.happened.append("pod is relabelled")
                self._pods[key] = OnePod(pod.node, pod.namespace, _labels(chance), pod.constraints, pod.ending)
            case _:
                self.happened.append("pod leaves")
                del self._pods[key]

    def _relabel(self, holding: Holding, chance: random.Random) -> None:
        """A pod that Berth placed has other labels; or one that had has those of its request again, or is gone."""
        if self._relabelled and chance.random() < 0.5:
            key = chance.choice(sorted(self._relabelled, key=lambda rank: (rank.uid, rank.attempt, rank.rank)))
            self._mark(self._relabelled.pop(key).node)
            self.happened.append("labels of its request again")
            return
        rank = chance.randrange(holding.placement.pods())
        node = holding.placement.names()[rank]
        key = RankName(holding.uid, holding.attempt, rank)
        self._relabelled[key] = OnePod(node, "default", _labels(chance), ending=chance.random() < 0.2)
        self._mark(node)
        self.happened.append("placed pod is relabelled")

    def _move(self, name: str, chance: random.Random) -> None:
        """A node comes to a domain, and leaves the others or not yet."""
        domain = chance.choice(_DOMAINS)
        self._mark(name)
        if chance.random() < 0.6:
            for names in self._domains.values():
                names.discard(name)
        if chance.random() < 0.8:
            self._domains[domain].add(name)
        self._mark(name)
        homes = sum(name in names for names in self._domains.values())
        self.happened.append(("node is in no domain", "node moves")[homes] if homes < 2 else "node is in two domains")

    def _mark(self, name: str) -> None:
        self._dirty |= {domain for domain, names in self._domains.items() if name in names}

    def _limited(self, name: str, chance: random.Random) -> OneNode:
        resources = {one: chance.randint(1, 4) for one in RESOURCES if chance.random() < 0.6}
        limits: dict[str, int] = {}
        if "volumes" in self._traits:
            limits = {driver: chance.randint(0, 2) for driver in DRIVERS if chance.random() < 0.5}
        return OneNode(name, {}, chance.choice(_POD_LIMITS), resources, limits)

    def _tell(self, domain: str) -> tuple[str, Message]:
        names = sorted(self._domains[domain])
        nodes = [self._limits[name] for name in names]
        pods = [pod for _, pod in sorted(self._pods.items()) if pod.node in names]
        relabelled = {rank: pod for rank, pod in self._relabelled.items() if pod.node in names}
        self._dirty.discard(domain)
        self.told[domain] = Usage(nodes, pods, relabelled)
        return f"usage.{domain}", usage_of(domain, nodes, pods, relabelled)


def _labels(chance: random.Random) -> dict[str, str]:
    return {"app": chance.choice(APPS)} if chance.random() < 0.8 else {}
