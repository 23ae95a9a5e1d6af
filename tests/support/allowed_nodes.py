"""Nodes on which Berth may place each waiting pod of a cluster, asked of the parts that decide.

Objects of an API server go through the inventory, its facts and requests through the core, as in a cell; only the
processes and the bus between them are missing. A pod is placed, the decision is taken back, its node is reported as
taking no new work, and so on until the pod is refused: the nodes that it got are those that are allowed.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from berth.core.cluster.node_packing import pack_health
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.formats.kubernetes.objects import Node, Pod
from berth.formats.kubernetes.storage_objects import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from berth.runtime.instruments import Instruments
from berth.schemas.columns import unpack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import HealthSeen, JobSeen, MembersSeen, NodeHealth, NodesSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Epoch, Settings
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import StreamName, Subjects
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.constraint_facts import STORAGE
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.loop import Loop
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.storage.object_facts import Taker
from tests.support.clock import ManualClock
from tests.support.constraint_world import Seen
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.fake_server import FakeServer
from tests.support.kube_scheduler import NAME

SUBJECTS: Final = Subjects("cell")
_TURNS_MAX: Final = 20
_TURN_S: Final = 5


class AllowedNodes:
    """Decisions of Berth on a cluster.

    Args:
        seen: All objects of the cluster.
        settings: Settings of the decisions.
    """

    def __init__(self, seen: Seen, settings: Settings) -> None:
        self._seen = seen
        self._state = State()
        self._scheduler = Scheduler(self._state)
        self._settings = settings
        self._now_ms = 1_000_000
        self._requests: dict[str, JobRequest] = {}
        self._holds: dict[str, str] = {}
        self._domains: dict[str, str] = {}
        self._judged = 0

    async def read(self) -> None:
        """Let the inventory read the cluster, and the core what it says."""
        clock = ManualClock()
        config = InventoryConfig(gangs=GangSettings(scheduler_names=(NAME,)))
        bus = FakeBus(FakeServer(clock), "cell")
        await bus.ensure_streams()
        loop = Loop(bus, FakeKube(clock=clock), clock, config, Instruments.make(InventoryMetrics))
        loop.replace_nodes(_converted(self._seen.of("/api/v1/nodes"), Node))
        loop.replace_pods(_converted(self._seen.of("/api/v1/pods"), Pod))
        storage, usage = loop.constraints.storage, loop.constraints.usage
        for path, kind, taker in (
            ("/api/v1/namespaces", Namespace, storage.namespaces),
            ("/api/v1/persistentvolumeclaims", PersistentVolumeClaim, storage.claims),
            ("/api/v1/persistentvolumes", PersistentVolume, storage.volumes),
            (f"{STORAGE}/storageclasses", StorageClass, storage.classes),
            (f"{STORAGE}/csidrivers", CsiDriver, storage.drivers),
            (f"{STORAGE}/csinodes", CsiNode, usage.volume_limits),
            (f"{STORAGE}/csistoragecapacities", CsiStorageCapacity, storage.capacities),
        ):
            _give(taker, _converted(self._seen.of(path), kind))
        for _ in range(_TURNS_MAX):
            assert await loop.turn()
            clock.advance(_TURN_S)
        self._begin()
        for stored in await bus.read(StreamName.FACTS):
            self._hear(stored.subject, stored.data)
        for stored in await bus.read(StreamName.INTAKE):
            request = decode(stored.data, JobRequest)
            self._requests[request.name] = request
        await bus.close()
        self._adopt()

    def of(self, pod: str) -> frozenset[str]:
        """Nodes on which a waiting pod may be placed; none if no request is made for it, see :meth:`hold`."""
        request = self._requests.get(f"pod.{pod}")
        if request is None:
            assert self.hold(pod), f"neither a request nor a reason for pod {pod}: {sorted(self._requests)}"
            return frozenset()
        self._judge(request, "accepted")
        found: list[str] = []
        while (node := self._place(request)) is not None:
            assert node not in found, f"{node} takes no new work, and still got pod {pod}"
            found.append(node)
            self._close(found)
        self._judge(request, "cancelled")
        self._close([])
        return frozenset(found)

    def hold(self, pod: str) -> str:
        """Why no request is made for a pod; empty if one is."""
        return self._holds.get(f"pod.{pod}", "")

    def _begin(self) -> None:
        epoch = Epoch(1, 0, 0, self._now_ms, "test", self._settings, rules=rules_of(self._settings))
        self._scheduler.begin(self._state.apply_record(1, self._state.fold.encoded(epoch)).changes)

    def _hear(self, subject: str, data: bytes) -> None:
        applied = self._state.apply_fact(subject, self._state.facts_seq + 1, data)
        assert not applied.error, applied.error
        self._scheduler.note(applied.changes)
        if subject.startswith(SUBJECTS.facts("node")[:-1]):
            seen = decode(data, NodesSeen)
            self._domains |= dict.fromkeys(unpack_names(seen.names), seen.domain)
        elif subject.startswith(SUBJECTS.facts("member")[:-1]):
            members = decode(data, MembersSeen)
            self._holds[members.job] = members.hold

    def _adopt(self) -> None:
        """Let the ledger take over what running pods hold."""
        opened = self._scheduler.open(self._now_ms)
        if opened.opening is not None:
            found = self._scheduler.decide(opened.opening)
            head = self._state.fold.head + 1
            self._scheduler.adopt(found, self._state.apply_record(head, self._state.fold.encoded(found.round)))

    def _judge(self, request: JobRequest, state: str) -> None:
        self._judged += 1
        job = JobSeen(
            request.namespace,
            request.name,
            request.uid,
            state,  # type: ignore[arg-type]  # one of the words of JobState
            self._judged,
            self._judged,
            self._now_ms,
            request,
            after_seq=self._judged - 1,
        )
        self._say(SUBJECTS.fact_job(request.namespace, request.name), job)

    def _say(self, subject: str, message: Message) -> None:
        self._hear(subject, encode(message))

    def _place(self, request: JobRequest) -> str | None:
        """Node that the pod of a request gets now; nothing of the decision stays."""
        opening = self._scheduler.open(self._now_ms).opening
        assert opening is not None, f"{request.name} is not due"
        found = self._scheduler.decide(opening)
        self._scheduler.take_back(found)
        (verdict,) = found.round.verdicts
        if verdict.placement is None:
            assert verdict.refusal is not None
            assert verdict.refusal.code not in {"internal", "invalid-request"}, verdict.refusal
            return None
        (node,) = unpack_names(verdict.placement.nodes)
        return node

    def _close(self, names: Sequence[str]) -> None:
        """Report that these nodes take no new work, and no others."""
        by_domain: dict[str, list[NodeCondition]] = {domain: [] for domain in set(self._domains.values())}
        for name in names:
            by_domain[self._domains[name]].append(NodeCondition(name, level=NodeHealth.NO_NEW_WORK))
        for domain in sorted(by_domain):
            fact: HealthSeen = pack_health(domain, by_domain[domain])
            self._say(SUBJECTS.fact_health(domain), fact)


def _give(taker: Taker[Any], objects: list[Any]) -> None:
    taker.replace(objects)


def _converted(trees: Sequence[dict[str, Any]], kind: type[Any]) -> list[Any]:
    return [msgspec.convert(tree, kind) for tree in trees]
