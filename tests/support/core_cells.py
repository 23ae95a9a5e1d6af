"""A cell without a bus for tests of the core: facts are applied, rounds are decided and folded, events happen."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.explain.evidence import Event, Unblocking
from berth.core.explain.unblocking import Waiting, unblocking
from berth.core.requests.gangs import gang_of
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.core.state.ledger import Folded
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Epoch, Release, Round, Settings, Verdict
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Refusal
from berth.schemas.subjects import Subjects
from tests.support.cells import a_node

SUBJECTS = Subjects("cell")
AT_ONCE: Final[Mapping[str, object]] = {"plan_before_delete": False, "hold_places_ms": 0, "fault_settle_ms": 0}
"""Settings under which a step waits neither for places nor for further faults, and holds none."""


class CoreCell:
    """A cell without a bus: facts go in, rounds are decided and folded."""

    def __init__(self, nodes: Sequence[NodeDescription], *, keeps: bool = False, **changes: object) -> None:
        self.state = State(keeps=keeps)
        self.nodes = {node.name: node for node in nodes}
        self.conditions: dict[str, NodeCondition] = {}
        self.requests = 0
        self.now_ms = 1_000
        self.scheduler = Scheduler(self.state)
        settings = Settings(**{**AT_ONCE, **changes})  # type: ignore[arg-type]  # fields of the settings
        epoch = Epoch(1, 0, 0, self.now_ms, "test", settings, rules=rules_of(settings))
        self.scheduler.begin(self.folded(epoch).changes)
        self.publish()

    def fact(self, subject: str, message: Message) -> None:
        applied = self.state.apply_fact(subject, self.state.facts_seq + 1, encode(message))
        assert not applied.error
        self.scheduler.note(applied.changes)

    def folded(self, message: Epoch | Round) -> Folded:
        folded = self.state.apply_record(self.state.fold.head + 1, self.state.fold.encoded(message))
        assert not folded.void
        return folded

    def publish(self) -> None:
        """Say all nodes and how they are."""
        self.fact(SUBJECTS.fact_node("all"), pack_nodes("all", self.nodes.values()))
        self.fact(SUBJECTS.fact_health("all"), pack_health("all", list(self.conditions.values())))

    def ask(self, *requests: JobRequest) -> None:
        for request in requests:
            self.requests += 1
            seen = JobSeen(
                request.namespace, request.name, request.uid, "accepted", self.requests, self.requests, self.now_ms,
                request, after_seq=self.requests - 1,
            )  # fmt: skip
            self.fact(SUBJECTS.fact_job(request.namespace, request.name), seen)

    def take_back(self, name: str) -> None:
        """A job is wanted no longer."""
        self.requests += 1
        job = self.state.jobs["default", name]
        changes = {"state": "cancelled", "intake_seq": self.requests, "after_seq": self.requests - 1}
        self.fact(SUBJECTS.fact_job("default", name), msgspec.structs.replace(job, **changes))

    def decide(self) -> list[Verdict]:
        """Verdicts of one round, folded."""
        opening = self.scheduler.open(self.now_ms).opening
        if opening is None:
            return []
        found = self.scheduler.decide(opening)
        self.scheduler.adopt(found, self.folded(found.round))
        return found.round.verdicts

    def place(self, *requests: JobRequest) -> None:
        self.ask(*requests)
        assert all(verdict.placement for verdict in self.decide())

    def refuse(self, request: JobRequest) -> Refusal:
        self.ask(request)
        (verdict,) = self.decide()
        assert verdict.refusal is not None
        return verdict.refusal

    def unblocking(self, request: JobRequest, refusal: Refusal) -> Unblocking:
        job = self.state.jobs[request.namespace, request.name]
        gang = gang_of(job, request, attempt=1, settings=self.state.fold.settings)
        before = shown(self.state)
        found = unblocking(self.state, Waiting(gang, refusal))
        assert shown(self.state) == before, "a trial leaves nothing behind"
        return found

    def release(self, *releases: Release) -> None:
        """Fold a round with releases alone."""
        fold = self.state.fold
        released = Round(1, fold.head, self.state.facts_seq, self.now_ms, fold.rounds + 1, releases=list(releases))
        self.scheduler.follow(self.folded(released))

    def recover(self, recovery: Recovery) -> None:
        """Fold a round with one step of a recovery alone; the setting ``recoveries`` must be on."""
        fold = self.state.fold
        record = Round(1, fold.head, self.state.facts_seq, self.now_ms, fold.rounds + 1, recoveries=[recovery])
        folded = self.state.apply_record(fold.head + 1, fold.encoded(record))
        assert not folded.void
        self.scheduler.follow(folded)

    def happen(self, event: Event) -> None:
        """Let an event really happen.

        Raises:
            AssertionError: It is none that can be played here.
        """
        match event.kind:
            case "job-ends":
                self.release(Release(event.uid, event.attempt, "succeeded"))
            case "node-well":
                node = self.nodes[event.node]
                self.nodes[event.node] = msgspec.structs.replace(
                    node, cordoned=False, ready=True, allocatable=node.chips.bit_count()
                )
                self.conditions.pop(event.node, None)
                self.publish()
            case "nodes-come":
                like = next(node for node in self.nodes.values() if node.product == event.product)
                for number in range(event.nodes):
                    name = f"zz-{number}"
                    self.nodes[name] = a_node(name, like.product, labels=like.labels)
                self.publish()
            case _:
                raise AssertionError(event)


def shown(state: State) -> object:
    """What a state says of its nodes and of who holds them."""
    table = state.table
    rows = [row for row in range(len(table)) if table.present[row]]
    columns = (
        "node_class",
        "free",
        "idle",
        "used",
        "releasing",
        "unhealthy",
        "level",
        "allocatable",
        "cpu_free",
        "domain",
    )
    nodes = [(table.names[row], *(int(getattr(table, name)[row]) for name in columns)) for row in rows]
    holdings = {key: (holding.name, state.owned(key)) for key, holding in state.fold.holdings.items()}
    return nodes, holdings, leaf_index_of(state.indexes).occupancy.bits().tolist()


def on(node: str) -> dict[str, str]:
    """Selector of one node."""
    return {"accelerator-type": "module-910b-8", "kubernetes.io/hostname": node}


def asked(ground: CoreCell, job: JobRequest) -> list[Verdict]:
    ground.ask(job)
    return ground.decide()


def nodes_in_superpods(widths: Sequence[int], product: str) -> list[NodeDescription]:
    """SuperPoDs 0, 1, ... with nodes ``0-0``, ``0-1``, ...; racks of four nodes; rows of two racks."""
    return [
        a_node(
            f"{pod}-{index}",
            product,
            superpod=str(pod),
            rack=str(index // 4),
            position=index,
            labels=dict(NODE_PRODUCTS[product].labels)
            | {"rack": f"r{pod}-{index // 4}", "row": f"w{pod}-{index // 8}"},
        )
        for pod, width in enumerate(widths)
        for index in range(width)
    ]
