"""Check of bound pods on the API server while the cell goes on: pods are read first, then the ledger."""

from typing import Final

from berth.core.verification.findings import Checked, Finding
from berth.core.verification.pod_check import BoundPod, are_records_lost, pod_finding, twice_given
from berth.formats.ascend.bind_annotations import LABEL_CHIP_NAME, NodeCard, physical_ids
from berth.formats.ascend.ledger_mark import mark_of
from berth.formats.ascend.mark_proofs import UNCHECKED, MarkProofs
from berth.formats.ascend.pod_annotations import ASCEND_REAL, BASE_DEVICE_INFOS, LEDGER, MAC, SHARE_LABEL
from berth.formats.kubernetes.bound_pods import counted, identity_of, named_chips, other_number
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import Listed, Pod
from berth.formats.kubernetes.pods import PodRequirementsReader
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.feeds import Feeds
from berth.runtime.fsck.status_check import PATIENCE_S, SETTLE_S, Pause, pause
from berth.runtime.kube.listing import objects_of
from berth.runtime.kube.port import Api
from berth.schemas.subjects import StreamName

_PAGE: Final = 1_000
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_CHIP_BITS: Final = 64
_UNPROVED: Final = "their marks are not checked without the keys: --marks-file"


class _Node(Lean, frozen=True):
    metadata: Meta = Meta()


async def bound_pods(api: Api, marks: MarkProofs = UNCHECKED) -> list[BoundPod]:
    """All pods on nodes that have not ended; marks that nothing proves do not count.

    Raises:
        TransientError: The server did not answer.
        RefusedError: It does not let this user list pods or nodes.
    """
    cards: dict[str, NodeCard] = {}
    async for node in objects_of(api, "/api/v1/nodes", Listed[_Node], page_size=_PAGE):
        meta = node.metadata
        infos, chip = meta.annotation(BASE_DEVICE_INFOS), meta.label(LABEL_CHIP_NAME)
        cards[meta.name] = NodeCard(name=meta.name, base_device_infos=infos, chip_name=chip)
    asks = PodRequirementsReader()
    return [
        _bound(pod, counted(pod.metadata, marks), asks, cards)
        async for pod in objects_of(api, "/api/v1/pods", Listed[Pod], page_size=_PAGE)
        if pod.spec.node_name and pod.status.phase not in _ENDED
    ]


def _bound(pod: Pod, meta: Meta, asks: PodRequirementsReader, cards: dict[str, NodeCard]) -> BoundPod:
    wrong: list[str] = []
    identity = identity_of(meta, wrong)
    ask = asks.ask(pod.spec, meta)
    resource, chips = named_chips(meta, ask.resource, wrong)
    card = cards.get(pod.spec.node_name)
    if card is not None and card.has_device_ids and not meta.annotation(ASCEND_REAL):
        ids = physical_ids(card, resource, (1 << len(card.devices())) - 1)
        chips = sum(1 << ids[bit] for bit in range(_CHIP_BITS) if chips >> bit & 1 and bit in ids)
    if chips.bit_count() > ask.chips:
        wrong.append(other_number(chips.bit_count(), ask.chips))
        chips = 0
    mark = mark_of(meta.annotation(LEDGER))
    keys = {**(meta.labels or {}), **(meta.annotations or {})}
    return BoundPod(
        name=f"{meta.namespace}/{meta.name}",
        uid=meta.uid,
        node=pod.spec.node_name,
        chips=chips,
        is_shared=any(key.startswith(SHARE_LABEL) for key in keys),
        job_uid=identity.uid if identity is not None else "",
        attempt=identity.attempt if identity is not None else 0,
        rank=identity.rank if identity is not None else 0,
        wrong="; ".join(wrong),
        stream=mark.stream if mark is not None else "",
        sequence=mark.sequence if mark is not None else 0,
        has_code=bool(meta.annotation(MAC)),
    )


async def check_pods(
    bus: Bus, clock: Clock, api: Api, feeds: Feeds, *, marks: MarkProofs = UNCHECKED, wait: Pause = pause
) -> tuple[list[Finding], list[Checked]]:
    """Check bound pods.

    What is wrong must be so for 5 s: a pod may be deleted, and its chips given back, between both reads.

    Args:
        bus: The cell.
        clock: Source of time, for the wait.
        api: The API server.
        feeds: Facts and ledger, which were started and not stopped.
        marks: Says of which pods the marks count.
        wait: Waits before the next look.

    Raises:
        FatalError: The history broke.
        RefusedError: The API server does not let this user list pods or nodes.
        TransientError: The bus or the server did not answer.
    """
    since: dict[Finding, float] = {}
    end_s = clock.monotonic_s() + PATIENCE_S
    while True:
        pods = await bound_pods(api, marks)
        found = await _find_wrong(bus, feeds, pods)
        now_s = clock.monotonic_s()
        since = {one: since.get(one, now_s) for one in found}
        is_settled = all(now_s - first_s >= SETTLE_S for first_s in since.values())
        if is_settled or now_s >= end_s:
            break
        await wait()
    settled = [one for one in found if now_s - since[one] >= SETTLE_S]
    left_out = f"{len(found) - len(settled)} of them changed all the time" if len(settled) < len(found) else ""
    ours = [pod for pod in pods if pod.job_uid]
    state = await bus.state(StreamName.LEDGER)
    named = sum(pod.stream == state.created for pod in ours)
    return settled, [
        Checked("pods on nodes", len(pods), left_out),
        Checked("chips of pods", sum(pod.chips.bit_count() for pod in pods if not pod.is_shared)),
        Checked("pods that Berth bound", len(ours), "" if marks.are_checked else _UNPROVED),
        Checked("pods that name a record of this ledger", named, _others(len(ours) - named)),
    ]


def _others(count: int) -> str:
    return f"{count} were bound by another ledger, or by a release before 0.5" if count > 0 else ""


async def _find_wrong(bus: Bus, feeds: Feeds, pods: list[BoundPod]) -> list[Finding]:
    ledger = await bus.state(StreamName.LEDGER)
    await feeds.reach_record(ledger.last_seq, timeout_s=10.0)
    feeds.replay()
    fold = feeds.state.fold
    found = twice_given(pods)
    are_lost = are_records_lost(pods, stream=ledger.created, last_seq=ledger.last_seq)
    for pod in pods:
        finding = pod_finding(pod, fold, stream=ledger.created, last_seq=ledger.last_seq, are_lost=are_lost)
        if finding is not None:
            found.append(finding)
    return found
