"""Facts about the pods of simulated jobs, as an inventory and a binder publish them."""

from collections.abc import Mapping
from typing import NamedTuple

from berth.core.state.holdings.holding import Holding
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import OutcomeSeen, OutcomeState, PodPhase, PodsSeen


class BoundPod(NamedTuple):
    """A pod that is bound.

    Attributes:
        node: Its node.
        mask: Its chips.
        step: Step of the recovery that gave its rank the place; 0: none did.
    """

    node: str
    mask: int
    step: int


def pods_fact(
    holding: Holding,
    pods: Mapping[int, BoundPod],
    gone: Mapping[int, BoundPod],
    *,
    steering: Mapping[str, str],
    at_ms: int,
) -> PodsSeen:
    """What is known of the pods of a job.

    Args:
        holding: Its attempt.
        pods: Pods that run, by rank.
        gone: Pods that are gone, by rank.
        steering: Labels that say what is done about faults.
        at_ms: Now.
    """
    rows = sorted({**pods, **gone}.items())
    nodes = sorted({pod.node for _, pod in rows})
    place = {name: index for index, name in enumerate(nodes)}
    return PodsSeen(
        namespace=holding.namespace,
        gang=holding.name,
        uid=holding.uid,
        attempt=holding.attempt,
        rank=pack([rank for rank, _ in rows], 4),
        nodes=pack_names(nodes),
        node_index=pack([place[pod.node] for _, pod in rows], 4),
        phase=bytes(PodPhase.GONE if rank in gone else PodPhase.RUNNING for rank, _ in rows),
        chips=pack([pod.mask for _, pod in rows], 8),
        resource=holding.placement.resource,
        at_ms=at_ms,
        steering=dict(steering),
        steps=pack([pod.step for _, pod in rows], 4) if any(pod.step for _, pod in rows) else b"",
    )


def outcome_fact(holding: Holding, state: OutcomeState, *, bound: int, step: int, at_ms: int) -> OutcomeSeen:
    """What the binder has done.

    Args:
        holding: The attempt.
        state: What became of it.
        bound: Count of bound pods.
        step: Newest step of its recovery that is carried out.
        at_ms: Now.
    """
    return OutcomeSeen(
        holding.namespace,
        holding.name,
        holding.uid,
        holding.attempt,
        state,
        bound=bound,
        at_ms=at_ms,
        step=step,
        done=step,
    )
