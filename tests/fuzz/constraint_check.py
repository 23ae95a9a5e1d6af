"""An oracle looks at each gang that a record places, and at each that it refuses.

It judges by what the facts say at that moment, pod after pod in the order in which Berth places them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from berth.core.state.cell import State
from berth.schemas.columns import unpack
from berth.schemas.constraints import Taint
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round, Verdict
from berth.schemas.nodes import NodeDescription
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import NodeReason, Refusal
from berth.schemas.usage_facts import ClaimName, RankName
from tests.fuzz.accounts import Accounts, follows_pods, follows_pods_of_step
from tests.fuzz.fact_oracle import AskingPod, Decided, FactOracle, HeldPod, SeenNode
from tests.fuzz.failure import Failure
from tests.fuzz.neighbours import Neighbours
from tests.fuzz.storage import Storage
from tests.support.constraint_worlds import NONE, OneNode

CHECKED: Final = "check: constraints"
RECOVERED: Final = "check: constraints of new places"
REFUSED: Final = "check: nodes that constraints forbid"
Held = tuple[str, int, int, bool]
"""Uid, attempt and rank of a pod, and whether its place is one that is reserved for the rank."""
_CORDON: Final = Taint("node.kubernetes.io/unschedulable")
_FORBIDS: Final = frozenset(reason for reason in NodeReason if NodeReason.PODS <= reason <= NodeReason.SPREAD)


def see_constraints_hold(  # everything that is known
    record: Round,
    accounts: Accounts,
    nodes: Mapping[str, NodeDescription],
    neighbours: Neighbours,
    storage: Storage,
    state: State,
) -> Counter[str]:
    """See that the gangs of a record break no hard constraint, one after the other, and that constraints forbid no
    node that the oracle allows; returns how many were looked at.

    Args:
        record: The record.
        accounts: What was held before it.
        nodes: What the facts say of nodes.
        neighbours: What they say of usage and namespaces.
        storage: What they say of volumes.
        state: For the jobs and the pods as the facts tell them, and the settings.

    Raises:
        Failure: They do.
    """
    count: Counter[str] = Counter()
    relabelled = {rank: None for usage in neighbours.told.values() for rank in usage.relabelled}
    pods = [pod for usage in neighbours.told.values() for pod in usage.pods]
    held = dict(_held(accounts, state.jobs, state.pods, relabelled))
    pods += held.values()
    labels = [pod for usage in neighbours.told.values() for pod in usage.relabelled.values()]
    limits = _limits(neighbours)
    names = dict.fromkeys([*nodes, *limits, *(pod.node for pod in (*pods, *labels))])
    oracle = FactOracle(
        [_seen(name, nodes.get(name), limits.get(name)) for name in names], pods, neighbours, storage, labels
    )
    attempts = {key: accounts.attempts[key] for key in accounts.owned if key in accounts.attempts}
    oracle.decided += [
        Decided(ClaimName(attempt.namespace, claim.claim), claim.uid, claim.volume, node)
        for key, attempt in attempts.items()
        for claim, node in state.fold.holdings[key].claims()
    ]
    for recovery in record.recoveries:
        if recovery.placement is not None:
            _see_recovery(oracle, recovery, held, state)
            count[RECOVERED] += 1
    moments = [len(oracle.pods)]
    for verdict in record.verdicts:
        job = state.jobs[verdict.namespace, verdict.name]
        if verdict.placement is not None:
            _see_gang(oracle, verdict, job, is_found=follows_pods(verdict, state.pods))
            moments.append(len(oracle.pods))
            count[CHECKED] += 1
        elif verdict.refusal is not None and job.request is not None:
            count[REFUSED] += _see_refusal(oracle, moments, job.request, verdict.refusal)
    return count


def _see_refusal(oracle: FactOracle, moments: Sequence[int], request: JobRequest, refusal: Refusal) -> bool:
    """See that at most as many nodes are counted as forbidden by constraints as the oracle forbids to such a pod.

    The refusal may be that of its class, earlier in the round. Returns whether there was something to look at.

    Raises:
        Failure: More are.
    """
    task = next((task for task in request.tasks if task.name == refusal.task), None)
    if task is None:
        return False
    told = {NodeReason(one.reason): one.nodes for one in refusal.counts if one.reason in _FORBIDS}
    if oracle.chooses_volumes(request.namespace, task.constraints or NONE):
        told.pop(NodeReason.VOLUME, None)  # which of several volumes a claim gets is not the oracle's business
    forbidden = sum(told.values())
    if not forbidden:
        return False
    pods = oracle.pods
    least = forbidden
    for moment in reversed(moments):
        oracle.pods = pods[:moment]
        found = [name for name in oracle.present() if oracle.broken(_asking(request, task, request.namespace, name))]
        least = min(least, forbidden - len(found))
        if least <= 0:
            break
    oracle.pods = pods
    if least > 0:
        raise Failure("constraints: nodes are forbidden for nothing", f"{request.name} {refusal.task}: {told}")
    return True


def _see_gang(oracle: FactOracle, verdict: Verdict, job: JobSeen, *, is_found: bool) -> None:
    """See that a gang breaks nothing, unless it is found where its pods run, and count it for the next ones.

    Raises:
        Failure: It breaks something.
    """
    assert verdict.placement is not None
    assert job.request is not None
    pods = asking(job.request, verdict.namespace, verdict.placement.names())
    chips = [task.chips for task in job.request.tasks for _ in range(task.replicas)]
    ranks = sorted(range(len(pods)), key=lambda rank: not chips[rank])
    for rank in ranks:
        broken = [] if is_found else oracle.broken(pods[rank])
        if broken:
            raise Failure(f"constraints: {broken[0]} is broken", f"{verdict.name} rank {rank} on {pods[rank].node}")
        oracle.pods.append(pods[rank])
        decided = _decided(verdict.namespace, verdict.placement)
        oracle.decided += [one for one in decided if one.name.name in pods[rank].constraints.claims]
    if not is_found:  # the claims of pods that run are bound, whatever is known of them yet
        _see_claims(oracle, verdict, pods)


def _see_recovery(oracle: FactOracle, recovery: Recovery, held: Mapping[Held, HeldPod], state: State) -> None:
    """See that new places break nothing beside all pods that are there, and count them for what comes next.

    A rank that goes back to the place that is its own takes it from itself. Places that are found with their pods, of a
    step whose record is lost, are as they are.

    Raises:
        Failure: They break something.
    """
    assert recovery.placement is not None
    request = state.jobs[recovery.namespace, recovery.name].request
    assert request is not None
    placement = recovery.placement
    tasks = [task for task in request.tasks for _ in range(task.replicas)]
    places = {
        rank: (_asking(request, tasks[rank], recovery.namespace, node), chips)
        for rank, node, chips in zip(recovery.ranks, placement.names(), placement.chips_by_rank(), strict=True)
    }
    is_found = follows_pods_of_step(recovery, state.pods)
    for rank in sorted(places, key=lambda rank: not tasks[rank].chips):
        pod, chips = places[rank]
        key = (recovery.uid, recovery.attempt)
        own = held.get((*key, rank, True)) or held.get((*key, rank, False))
        returns = own is not None and (own.node, own.chips) == (pod.node, chips)
        if returns and own is not None:
            oracle.pods.remove(own)
        broken = [] if is_found else oracle.broken(pod)
        if broken:
            raise Failure(f"constraints: {broken[0]} is broken by a new place", f"{recovery.name} rank {rank} {pod}")
        oracle.pods.append(own if returns and own is not None else pod)
        at = recovery.ranks.index(rank)
        oracle.decided += [
            Decided(ClaimName(recovery.namespace, one.claim), one.uid, one.volume, pod.node)
            for one in placement.claims
            if one.rank == at
        ]


def _see_claims(oracle: FactOracle, verdict: Verdict, pods: Sequence[AskingPod]) -> None:
    """See that a placement says of each claim that is not bound what it gets, and of no other one.

    Raises:
        Failure: It does not, or it gives a volume to two claims.
    """
    assert verdict.placement is not None
    told = {(one.claim, one.rank): one.uid for one in verdict.placement.claims}
    wanted: dict[tuple[str, int], str] = {}
    for rank, pod in enumerate(pods):
        for claim in oracle.open_claims(pod):
            if all(claim.name != name for name, _ in wanted):
                wanted[claim.name, rank] = claim.uid
    if told != wanted:
        raise Failure("constraints: a placement says something else of its claims", f"{verdict.name}: {told}, {wanted}")
    owners: dict[str, tuple[ClaimName, str]] = {}
    for one in oracle.decided:
        if one.volume and owners.setdefault(one.volume, (one.name, one.uid)) != (one.name, one.uid):
            raise Failure("constraints: a volume is given to two claims", f"{verdict.name}: {one} {owners[one.volume]}")


def _decided(namespace: str, placement: Placement) -> list[Decided]:
    """What a placement says of claims."""
    nodes = placement.names()
    return [Decided(ClaimName(namespace, one.claim), one.uid, one.volume, nodes[one.rank]) for one in placement.claims]


def asking(request: JobRequest, namespace: str, nodes: Iterable[str]) -> list[AskingPod]:
    """Pods of a request on some nodes, by rank."""

    tasks = [task for task in request.tasks for _ in range(task.replicas)]
    return [_asking(request, task, namespace, node) for task, node in zip(tasks, nodes, strict=True)]


def _asking(request: JobRequest, task: Task, namespace: str, node: str) -> AskingPod:
    return AskingPod(
        node,
        namespace,
        task.labels,
        task.constraints or NONE,
        selector={**request.node_selector, **task.node_selector},
        affinity=tuple(task.affinity),
        tolerations=tuple(task.tolerations),
    )


def _held(
    accounts: Accounts,
    jobs: Mapping[tuple[str, str], JobSeen],
    pods: Mapping[tuple[str, str], PodsSeen],
    relabelled: Mapping[RankName, None],
) -> Iterator[tuple[Held, HeldPod]]:
    """Pods that Berth has placed, and those for which it keeps places. What was adopted is in the facts of usage."""
    for key, ranks in accounts.owned.items():
        attempt = accounts.attempts.get(key)
        if attempt is None:
            continue
        job = jobs.get((attempt.namespace, attempt.name))
        request = job.request if job is not None and job.uid == attempt.uid else None
        tasks = [task for task in request.tasks for _ in range(task.replicas)] if request is not None else []
        ending = _ending(pods.get((attempt.namespace, attempt.name)), key)
        places = [(rank, pod, False) for rank, pod in ranks.items()]
        places += [(rank, pod, True) for rank, pod in accounts.expected(key)]
        for rank, pod, is_reserved in places:
            held = (*key, rank, is_reserved)
            if len(tasks) != attempt.placement.pods():
                yield held, HeldPod(pod.node, has_labels=False, chips=pod.chips)
                continue
            task, has_labels = tasks[rank], RankName(*key, rank) not in relabelled
            wanted = task.constraints or NONE
            yield (
                held,
                HeldPod(
                    pod.node,
                    attempt.namespace,
                    task.labels,
                    wanted,
                    rank in ending and not is_reserved,
                    has_labels=has_labels,
                    chips=pod.chips,
                ),
            )


def _ending(seen: PodsSeen | None, key: tuple[str, int]) -> set[int]:
    """Ranks of an attempt that are being deleted."""
    if seen is None or (seen.uid, seen.attempt) != key:
        return set()
    phases = zip(unpack(seen.rank, 4), seen.phase, strict=True)
    return {rank for rank, phase in phases if phase == PodPhase.TERMINATING}


def _seen(name: str, node: NodeDescription | None, limits: OneNode | None) -> SeenNode:
    """A node with what all facts say of it."""
    of = limits or OneNode(name)
    if node is None:
        return SeenNode(name, {}, of.pods_max, of.resources, of.volumes, is_there=False)
    taints = [*node.taints, _CORDON] if node.cordoned else node.taints
    return SeenNode(name, node.labels, of.pods_max, of.resources, of.volumes, taints=tuple(taints))


def _limits(neighbours: Neighbours) -> dict[str, OneNode]:
    """Limits of nodes: the smallest where facts of several domains tell them."""
    found: dict[str, OneNode] = {}
    for usage in neighbours.told.values():
        for node in usage.nodes:
            other = found.get(node.name, OneNode(node.name))
            found[node.name] = OneNode(
                node.name,
                {},
                min(node.pods_max, other.pods_max),
                _least(node.resources, other.resources),
                _least(node.volumes, other.volumes),
            )
    return found


def _least(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: min(one.get(key, other.get(key, 0)), other.get(key, one.get(key, 0))) for key in {**one, **other}}
