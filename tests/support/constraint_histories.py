"""Histories of a cell with constraints of pods: steps that a test draws, and the messages that they are.

A step is plain data; what its numbers mean is looked up when it is lived through, so any list of steps is a history.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from hypothesis import strategies as st

from berth.core.cluster.node_packing import pack_nodes, pack_switches
from berth.core.state.ledger import Holding, LedgerFold
from berth.schemas.constraints import Expression, Term
from berth.schemas.facts import PodPhase
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Round
from berth.schemas.message import Message
from berth.schemas.nodes import NodeDescription
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm, PreferredPods, SpreadTerm
from berth.schemas.subjects import Subjects
from berth.schemas.usage_facts import NamespaceSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen, VolumeSeen
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import HOST, OneNode, OnePod, Oracle, having, near, pods_of, usage_of
from tests.support.load import pods_of as fact_of

NODES: Final = 10
ON: Final = {"corrections": 1, "skims_classes": True, "plain_pods": True}
OWN: Final = {"v-1": "n2", "v-2": "n4"}
"""Volumes that the claims "own-..." may get, each on its node."""
_APPS: Final = ("a", "b", "data")
_NOT_B: Final = LabelSelector((Expression("app", "NotIn", ("b",)), Expression("app", "Exists")))
_CHOICES: Final[tuple[PodConstraints | None, ...]] = (
    None,
    None,
    PodConstraints(anti_affinity=(near(HOST, app="a"),)),
    PodConstraints(anti_affinity=(near("zone", app="b"),)),
    PodConstraints(anti_affinity=(PodTerm("zone", having(app="a"), (), having(team="x")),)),
    PodConstraints(affinity=(near("zone", app="a"),)),
    PodConstraints(affinity=(near("zone", app="data"),), anti_affinity=(near(HOST, app="b"),)),
    PodConstraints(affinity=(near("zone", app="a"), near("rack", app="a"))),
    PodConstraints(affinity=(near(HOST, app="b"),), ports=(HostPort(90),)),
    PodConstraints(spread=(SpreadTerm("zone", 1, having(app="a")),)),
    PodConstraints(spread=(SpreadTerm("zone", 1, _NOT_B, by_affinity=False), SpreadTerm(HOST, 2, having(app="a")))),
    PodConstraints(spread=(SpreadTerm("rack", 2, having(app="b"), min_domains=3),)),
    PodConstraints(ports=(HostPort(80),)),
    PodConstraints(ports=(HostPort(80, address="10.0.0.1"), HostPort(81, "UDP"))),
    PodConstraints(resources=(("rdma/hca", 2),)),
    PodConstraints(anti_affinity=(PodTerm("rack", LabelSelector(), ("default",)),)),
    PodConstraints(claims=("in-b",)),
    PodConstraints(claims=("once",), preferred_near=(PreferredPods(3, near("zone", app="a")),)),
    PodConstraints(claims=("made",), ports=(HostPort(80),)),
    PodConstraints(claims=("in-b", "made"), spread=(SpreadTerm("rack", 1, having(app="a")),)),
    PodConstraints(claims=("missing",)),
    PodConstraints(claims=("own-1",)),
    PodConstraints(claims=("own-2",), ports=(HostPort(81),)),
    PodConstraints(claims=("own-1", "own-2")),
    PodConstraints(
        preferred_spread=(SpreadTerm("rack", 1, having(app="a")),),
        preferred_apart=(PreferredPods(3, near("zone", app="b")),),
    ),
    PodConstraints(
        affinity=(near("zone", app="a"),),
        spread=(SpreadTerm("rack", 1, having(app="a")),),
        resources=(("rdma/hca", 1),),
    ),
)
_FOREIGN: Final = tuple(one for one in _CHOICES if one is None or not {"own-1", "own-2"} & set(one.claims))
"""Constraints of pods of other schedulers: their claims are bound, or of a class that makes volumes."""
_VERBS: Final = (
    ("submit",) * 8
    + ("foreign",) * 3
    + ("ended",) * 3
    + ("cancel", "terminating", "label", "namespace", "epoch", "unbound")
)


class Step(msgspec.Struct, frozen=True):
    """One event of a history."""

    verb: str
    one: int = 0
    two: int = 0
    three: int = 0


_COUNT = st.integers(0, 60)
STEPS = st.lists(
    st.builds(Step, verb=st.sampled_from(_VERBS), one=_COUNT, two=_COUNT, three=_COUNT), min_size=12, max_size=30
)


def a_request(number: int, step: Step) -> JobRequest:
    """Job ``number`` of a history."""
    first = _CHOICES[step.one % len(_CHOICES)]
    second = _CHOICES[step.two % len(_CHOICES)]
    app, other = _APPS[step.two % 3], _APPS[step.three % 3]
    share = step.three % 7 == 1
    chips = 1 if share else (1, 2, 4, 8)[step.three % 4]
    tasks = [Task("worker", 1 + step.one % 4, chips, cpu_milli=1_000, labels={"app": app}, constraints=first)]
    if step.two % 4 == 0:
        tasks.append(Task("extra", 1 + step.three % 2, chips, labels={"app": other}, constraints=second))
    if share:
        annotations = {
            "huawei.com/scheduler.softShareDev.aicoreQuota": "40",
            "huawei.com/scheduler.softShareDev.hbmQuota": "4000",
            "huawei.com/scheduler.softShareDev.policy": "elastic",
        }
        job = a_job(f"j{number}", product="soft-share", tasks=tasks[:1])
        return msgspec.structs.replace(job, annotations=job.annotations | annotations)
    job = a_job(f"j{number}", tasks=tasks)
    by_switch = step.one % 5 == 2
    return msgspec.structs.replace(job, labels={"tor-affinity": "normal-schema"}) if by_switch else job


class History:
    """A cell as its facts tell it, and what its ledger says.

    Args:
        cell: Name of the cell.
    """

    def __init__(self, cell: str) -> None:
        self.subjects = Subjects(cell)
        self.nodes = {node.name: node for node in map(_node, range(NODES))}
        self.limits = {
            name: OneNode(name, {}, 5 + number % 4, {"rdma/hca": number % 5} if number % 5 else {})
            for number, name in enumerate(sorted(self.nodes))
        }
        self.foreign: list[OnePod] = []
        self.namespaces: dict[str, dict[str, str]] = {}
        self.jobs: dict[str, JobRequest] = {}
        self.failed: dict[str, set[str]] = {}
        """Nodes on which claims could not be bound."""
        self.fold = LedgerFold()
        self.held: dict[tuple[str, int], list[OnePod]] = {}
        self.ending: set[tuple[str, int]] = set()

    def begin(self) -> Iterator[tuple[str, Message]]:
        """Facts with which the cell begins."""
        yield self._nodes()
        yield self.subjects.fact_topology("switch"), pack_switches(self.nodes.values())
        yield self._usage()
        zones = [[Term((Expression("zone", "In", values),))] for values in (("b",), ("a", "b"))]
        claim = ClaimSeen("default", "in-b", phase="bound", volume="pv-b")
        for fact in (claim, msgspec.structs.replace(claim, name="once", volume="pv", access=["ReadWriteOncePod"])):
            yield self.subjects.fact_claim("default", fact.name), fact
        yield self.subjects.fact_claim("default", "made"), ClaimSeen("default", "made", storage_class="fast", size=1)
        for volume in (VolumeSeen("pv-b", affinity=zones[0]), VolumeSeen("pv")):
            yield self.subjects.fact_volume(volume.name), volume
        yield self.subjects.fact_storage("fast"), StorageSeen("fast", provisioner="d", waits=True, topologies=zones[1])
        yield self.subjects.fact_storage("local"), StorageSeen("local", waits=True)
        for name in ("own-1", "own-2"):
            yield self.subjects.fact_claim("default", name), ClaimSeen("default", name, storage_class="local", size=1)
        for name, node in OWN.items():
            here = Term((Expression(HOST, "In", (node,)),))
            yield self.subjects.fact_volume(name), VolumeSeen(name, affinity=[here], storage_class="local", size=1)

    def _nodes(self) -> tuple[str, Message]:
        return self.subjects.fact_node("all"), pack_nodes("all", self.nodes.values())

    def _usage(self) -> tuple[str, Message]:
        return self.subjects.fact_usage("all"), usage_of("all", list(self.limits.values()), self.foreign)

    def request(self, step: Step) -> JobRequest:
        """The job of a step that submits one."""
        job = a_request(len(self.jobs), step)
        self.jobs[job.name] = job
        return job

    def facts(self, step: Step) -> Iterator[tuple[str, Message]]:
        """Facts of a step."""
        names = sorted(self.nodes)
        name = names[step.one % len(names)]
        match step.verb:
            case "foreign":
                if step.two % 3 == 0 and self.foreign:
                    del self.foreign[step.one % len(self.foreign)]
                else:
                    constraints = _FOREIGN[step.three % len(_FOREIGN)] or PodConstraints()
                    labels = {"app": _APPS[step.two % 3]}
                    namespace = ("default", "other")[step.three % 2]
                    self.foreign.append(OnePod(name, namespace, labels, constraints, ending=step.three % 5 == 0))
                yield self._usage()
            case "label":
                node = self.nodes[name]
                labels = dict(node.labels) | {"zone": "abc"[step.two % 3]}
                if step.three % 4 == 0:
                    del labels["zone"]
                self.nodes[name] = msgspec.structs.replace(node, labels=labels)
                yield self._nodes()
            case "namespace":
                namespace = ("default", "other")[step.one % 2]
                self.namespaces[namespace] = {"team": "xy"[step.two % 2]}
                yield self.subjects.fact_namespace(namespace), NamespaceSeen(namespace, self.namespaces[namespace])
            case "unbound":
                yield self._unbound(step)
            case "ended" | "terminating":
                yield from self._phases(step)
            case _:
                return

    def _unbound(self, step: Step) -> tuple[str, Message]:
        """A claim that could not be bound on a node, or for which that counts no longer."""
        claim = ("made", "own-1", "own-2")[step.one % 3]
        fact = UnboundSeen("default", claim, "", reason="refused")
        if step.three % 4 == 0:
            self.failed.pop(claim, None)
        elif claim == "made":
            node = sorted(self.nodes)[step.two % NODES]
            self.failed[claim] = {node}
            fact = msgspec.structs.replace(fact, nodes=[node])
        else:
            volume = sorted(OWN)[step.two % 2]
            self.failed[claim] = {OWN[volume]}
            fact = msgspec.structs.replace(fact, volumes=[volume])
        return self.subjects.fact_unbound("default", claim), fact

    def _phases(self, step: Step) -> Iterator[tuple[str, Message]]:
        held = sorted(self.held)
        if not held:
            return
        key = held[step.one % len(held)]
        holding = self.fold.holdings[key]
        phase = PodPhase.SUCCEEDED if step.verb == "ended" else PodPhase.TERMINATING
        if phase == PodPhase.TERMINATING:
            self.ending.add(key)
        yield self.subjects.fact_pod("default", holding.name), fact_of(holding, phase)

    def oracle(self) -> Oracle:
        """What is allowed beside all that is there."""
        pods = [msgspec_replace(pod, ending=key in self.ending) for key in sorted(self.held) for pod in self.held[key]]
        nodes = [
            OneNode(name, self.nodes[name].labels, limit.pods_max, limit.resources)
            for name, limit in self.limits.items()
        ]
        return Oracle(nodes, [*self.foreign, *pods], self.namespaces, self.failed)

    def follow(self, record: Epoch | Round) -> None:
        """Take over a record as its leader would store it; see :meth:`follow_stored`."""
        self.follow_stored(self.fold.encoded(record))

    def follow_stored(self, data: bytes) -> None:
        """Take over a record, and see that each gang that it places breaks no constraint, pod after pod.

        Raises:
            AssertionError: One does.
        """
        folded = self.fold.apply(self.fold.head + 1, data)
        assert not folded.void
        for holding in folded.taken:
            job = self.jobs[holding.name]
            pods = pods_of(job.tasks, holding.placement.names())
            assert len(pods) == sum(task.replicas for task in job.tasks), "a gang is placed whole"
            oracle = self.oracle()
            selector = dict(job.node_selector)
            for pod in pods:
                assert oracle.broken(pod, node_selector=selector) == [], f"{job.name} on {pod.node}"
                oracle.pods.append(pod)
            self.held[holding.key] = pods
            self._check_volumes(holding)
        for holding in folded.given_back:
            del self.held[holding.key]
            self.ending.discard(holding.key)

    def _check_volumes(self, placed: Holding) -> None:
        """See that a placement names each claim that is not bound, and gives no volume that another claim gets.

        Raises:
            AssertionError: It does.
        """
        job = self.jobs[placed.name]
        claims = {claim for task in job.tasks if task.constraints is not None for claim in task.constraints.claims}
        assert {one.claim for one in placed.placement.claims} == claims & {"made", "own-1", "own-2"}
        given: dict[str, str] = {}
        for holding in self.fold.holdings.values():
            names = holding.placement.names()
            for one in holding.placement.claims:
                assert (one.volume != "") == (one.claim != "made")
                assert OWN.get(one.volume, names[one.rank]) == names[one.rank]
                assert given.setdefault(one.volume, one.claim) == one.claim, f"{one.volume} is given twice"

    def allowed(self, job: JobRequest) -> list[str]:
        """Nodes that constraints leave to the first pod of a job, apart from chips."""
        task = job.tasks[0]
        oracle = self.oracle()
        pods = [
            OnePod(name, "default", task.labels, task.constraints or PodConstraints()) for name in sorted(self.nodes)
        ]
        return [pod.node for pod in pods if not oracle.broken(pod, node_selector=dict(job.node_selector))]


def msgspec_replace(pod: OnePod, *, ending: bool) -> OnePod:
    """A pod that is being deleted, or not."""
    return OnePod(pod.node, pod.namespace, pod.labels, pod.constraints, ending)


def _node(number: int) -> NodeDescription:
    product = "soft-share" if number % 4 == 3 else "module910bx8"
    node = a_node(f"n{number * 7 % NODES}", product, leaf=f"leaf{number % 2}", position=number // 2, cpu_milli=20_000)
    labels: Mapping[str, str] = {"zone": "abc"[number % 3], "rack": f"r{number % 4}"}
    if number == NODES - 1:
        labels = {"rack": "r9"}
    return msgspec.structs.replace(node, labels={**node.labels, **labels})


Publish = Callable[[str, Message], None]
