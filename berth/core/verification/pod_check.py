"""Bound pods of the cluster, compared with the ledger and with one another."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from berth.core.chips.picking import ids_of, named_by_several
from berth.core.pod_shares import PodShare
from berth.core.state.holdings.holding import Holding
from berth.core.state.ledger import LedgerFold
from berth.core.text import ranges
from berth.core.verification.findings import RESTORE, Finding

POD: Final = "pod"


class BoundPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a node that has not ended.

    Attributes:
        name: Namespace and name, with a slash between.
        uid: Its uid.
        node: Its node.
        chips: Physical ids of the chips that its annotations name, as a mask.
        is_shared: It has a part of a chip, which others may share.
        job_uid: Uid of the job by which Berth bound it; empty if it did not.
        attempt: Attempt of that job.
        rank: Rank in it.
        wrong: Why its annotations cannot be read; empty if they can.
        stream: Stream of the ledger that it names; empty without one.
        sequence: Record of that stream.
        has_code: It has a code that proves what it names, right or not.
    """

    name: str
    uid: str
    node: str
    chips: int
    is_shared: bool
    job_uid: str
    attempt: int
    rank: int
    wrong: str
    stream: str
    sequence: int
    has_code: bool = False


def twice_given(pods: Iterable[BoundPod]) -> list[Finding]:
    """Chips that two pods name, as one finding for each pod but the first of a chip."""
    alone = {one.uid: one for one in sorted(pods, key=lambda one: (one.name, one.uid)) if not one.is_shared}
    on_node: dict[str, dict[str, int]] = {}
    for pod in alone.values():
        on_node.setdefault(pod.node, {})[pod.uid] = pod.chips
    others: dict[str, dict[str, list[int]]] = {}
    for named in on_node.values():
        for chip, (first, *rest) in named_by_several(named):
            for uid in rest:
                others.setdefault(uid, {}).setdefault(alone[first].name, []).append(chip)
    return [
        _finding(
            "chip-twice", pod,
            f"pod {other} on node {pod.node} has chips {ranges(chips)} too; delete the one that should not be there",
            _delete(pod),
        )
        for uid, pod in alone.items()
        for other, chips in others.get(uid, {}).items()
    ]  # fmt: skip


def are_records_lost(pods: Iterable[BoundPod], *, stream: str, last_seq: int) -> bool:
    """Whether pods that name records behind the last one are to be believed.

    In a cell whose pods have codes, pods of two nodes have to say so: those of one node alone may be wrong.
    """
    listed = list(pods)
    nodes = {pod.node for pod in listed if pod.stream == stream and pod.sequence > last_seq}
    return len(nodes) > 1 or not any(pod.has_code for pod in listed)


def pod_finding(pod: BoundPod, fold: LedgerFold, *, stream: str, last_seq: int, are_lost: bool) -> Finding | None:
    """What is wrong with a pod by the ledger; None if nothing is.

    Args:
        pod: The pod.
        fold: The folded ledger, at a later time than the pod.
        stream: Id of the ledger's stream.
        last_seq: Its last record.
        are_lost: Pods of other nodes say too that records behind the last one were lost.
    """
    if pod.stream == stream and pod.sequence > last_seq:
        return _finding(
            "pod-ahead", pod,
            f"it was bound by record {pod.sequence}, but the ledger ends at {last_seq}:"
            f" {'the newest records were lost' if are_lost else 'no pod of another node says so; has a backup more?'}",
            RESTORE if are_lost else _kubectl(pod, "get", "-o yaml"),
        )  # fmt: skip
    if pod.wrong:
        return _finding("unreadable-pod", pod, f"{pod.wrong}; Berth does not know what it owns", _delete(pod))
    if not pod.job_uid:
        return None
    holding = fold.holdings.get((pod.job_uid, pod.attempt)) or fold.holdings.get((pod.uid, 0))
    if holding is None:
        return _finding(
            "pod-without-record", pod,
            f"attempt {pod.attempt} of its job holds nothing in the ledger, so its chips may be given again; the"
            " inventory adopts it when it runs",
            _delete(pod),
        )  # fmt: skip
    shares = _shares(holding, fold, 0 if holding.foreign else pod.rank)
    return _elsewhere(pod, shares)


def _elsewhere(pod: BoundPod, shares: Sequence[PodShare]) -> Finding | None:
    """Finding on a pod that is not at the places of its rank; None if it is."""
    here = [one for one in shares if one.node == pod.node]
    if any(pod.is_shared or not pod.chips & ~one.mask for one in here):
        return None
    others = _words(pod.chips)
    if any(pod.chips.bit_count() <= one.mask.bit_count() for one in here):
        return _finding(
            "chips-elsewhere", pod,
            f"it has chips {others}, the ledger has {' or '.join(_words(one.mask) for one in here)} for rank {pod.rank}:"
            " others own some of them, and new work gets neither",
            "",
        )  # fmt: skip
    right = " or ".join(f"{one.node} with chips {_words(one.mask)}" for one in shares) or "no place"
    return _finding(
        "pod-elsewhere", pod,
        f"it is on {pod.node} with chips {others}, the ledger has {right} for rank {pod.rank}",
        _delete(pod),
    )  # fmt: skip


def _shares(holding: Holding, fold: LedgerFold, rank: int) -> list[PodShare]:
    """Places at which the pod of a rank may be: its own, and one that is reserved for it."""
    ranks = fold.pods_of(holding)[: holding.placement.pods()]
    own = [ranks[rank]] if rank < len(ranks) and ranks[rank].pods else []
    reserved = holding.reserved().get(rank)
    return own if reserved is None else [*own, reserved]


def _words(mask: int) -> str:
    return ranges(ids_of(mask)) or "none"


def _delete(pod: BoundPod) -> str:
    return _kubectl(pod, "delete")


def _kubectl(pod: BoundPod, verb: str, *more: str) -> str:
    namespace, _, name = pod.name.partition("/")
    return " ".join([f"kubectl {verb} pod -n {namespace} {name}", *more])


def _finding(code: str, pod: BoundPod, text: str, repair: str) -> Finding:
    return Finding(code, POD, name=pod.name, text=text, repair=repair)
