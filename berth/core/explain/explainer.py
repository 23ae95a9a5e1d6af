"""Explains a decision: repeats the round on the same state and adds the runner-up of each choice.

Pure: the input is the state just before a record and the record itself, the result is data. The verdicts that come
earlier in the record are applied first, as they were in the round.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.constraints.preferences import has_preferences
from berth.core.explain.alternatives import alternatives_of, runner_up_of
from berth.core.explain.current_reasons import reason_of
from berth.core.explain.evidence import LostBy
from berth.core.explain.model import Basis, Choice, Explanation
from berth.core.explain.nearest import Holders, nearest_domains, nearest_nodes, nodes_by_reason
from berth.core.explain.node_snapshot import NodeSnapshot, ShapeEvaluation
from berth.core.explain.obstacles import Namer
from berth.core.explain.refusal_text import sentence
from berth.core.explain.request import summary_of
from berth.core.explain.unblocking import Waiting, unblocking
from berth.core.gangs import Gang, placing_order, planned_shapes
from berth.core.parity import differs
from berth.core.placement.near_pods import near_bonus
from berth.core.placement.round_demand import is_heavy
from berth.core.placement.scoring import Reasons
from berth.core.scheduling.rules.registry import built
from berth.core.scheduling.turn import MissingShards
from berth.core.state.cell import State
from berth.core.state.cell_fork import CellFork
from berth.core.state.ledger import Holding, pods_of
from berth.core.topologies.layouts import WaitingGang
from berth.core.topologies.registry import seats_of
from berth.products.catalogue import FORMS
from berth.schemas.ledger import Round, Settings, Verdict
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.refusal import INTERNAL, LATE, RULE, NodeReason, Refusal

_SETTING: Final = re.compile(r"\(setting (\w+)\)")
"""How a refusal names the setting that causes it."""
_FITS: Final = int(NodeReason.FITS)


def explain(state: State, record: Round, uid: str, *, ledger_seq: int) -> Explanation | None:
    """Explain the verdict of a record.

    Args:
        state: Facts at ``record.facts_seq`` and the ledger just before the record.
        record: The record, stored at ``ledger_seq``.
        uid: The gang.
        ledger_seq: Sequence of the record.

    Returns:
        None when the record has no verdict on the gang, or the state does not contain its request.
    """
    held = state.fold.held.get(uid)
    was_reserved = held is not None and held.is_reserved
    if held is not None and was_reserved:
        state = CellFork(state)
        state.lift(held)
    snapshot = NodeSnapshot(state, state.fold.settings, record.at_ms)
    verdict: Verdict | None = None
    laid: list[Holding] = []
    for verdict in record.verdicts:
        if verdict.uid == uid:
            break
        if verdict.placement is not None:
            snapshot.take_all(verdict, verdict.placement)
            laid.append(_held(verdict, verdict.placement, ledger_seq, record.at_ms))
    else:
        return None
    gang = snapshot.gang(verdict)
    if gang is None:
        return None
    case = _Case(snapshot, gang, verdict, laid, MissingShards(record.shards, record.missing))
    explanation = _explained(case, _basis(state, record, ledger_seq))
    if was_reserved and explanation.outcome == "placed":
        explanation.was_reserved = explanation.is_confirmed = True
    return explanation


def _held(verdict: Verdict, placement: Placement, ledger_seq: int, at_ms: int) -> Holding:
    return Holding(
        verdict.namespace, verdict.name, verdict.uid, verdict.attempt, placement, ledger_seq=ledger_seq, at_ms=at_ms
    )


def explain_now(
    state: State, verdict: Verdict, *, ledger_seq: int, at_ms: int = 0, with_nodes: bool = False
) -> Explanation | None:
    """As :func:`explain`, on the current state: of a job that waits, or when the history is no longer stored.

    Args:
        state: Current facts and ledger.
        verdict: Last known verdict. A refusal for want of room is judged again.
        ledger_seq: Record with this verdict.
        at_ms: The time, if it is later than that of the last record.
        with_nodes: Whether to say of each node if it could take a pod of a job that waits.
    """
    fold = state.fold
    held = fold.holdings.get((verdict.uid, verdict.attempt)) if verdict.placement is not None else None
    without = CellFork(state)
    if held is not None:
        without.lift(held)
    snapshot = NodeSnapshot(without, fold.settings, fold.at_ms)
    gang = snapshot.gang(verdict)
    if gang is None:
        return None
    if verdict.refusal is not None and not verdict.final:
        now = reason_of(state, snapshot.scorer, gang, verdict.refusal, at_ms=max(fold.at_ms, at_ms))
        verdict = msgspec.structs.replace(verdict, refusal=now.refusal)
    basis = Basis(ledger_seq, state.facts_seq, fold.at_ms, fold.epoch, is_current=True)
    basis = _with_state(basis, state)
    explanation = _explained(_Case(snapshot, gang, verdict), basis)
    if with_nodes and explanation.outcome == "waiting" and explanation.code not in {INTERNAL, LATE}:
        index = gang.tasks.index(explanation.task) if explanation.task else 0
        explanation.task = gang.tasks[index]
        explanation.fits = nodes_by_reason(snapshot, gang.request_class[index][0])
    return explanation


def explain_rejection(namespace: str, name: str, uid: str, refusal: Refusal, *, basis: Basis) -> Explanation:
    """Explain a rejection, which does not depend on the cluster."""
    form = FORMS.get(refusal.form)
    return Explanation(
        namespace=namespace,
        name=name,
        uid=uid,
        outcome="rejected",
        basis=basis,
        form=refusal.form,
        title=form.title if form is not None else "",
        because=refusal.form_because,
        code=refusal.code,
        sentence=sentence(refusal),
        since_ms=basis.at_ms,
        field=refusal.field,
        value=refusal.value,
        expected=refusal.expected,
        setting=f"decisions.{asked[1]}" if (asked := _SETTING.search(refusal.expected)) else "",
    )


def _basis(state: State, record: Round, ledger_seq: int) -> Basis:
    basis = Basis(ledger_seq, record.facts_seq, record.at_ms, record.epoch, record.number)
    return _with_state(msgspec.structs.replace(basis, missing_shards=list(record.missing)), state)


def _with_state(basis: Basis, state: State) -> Basis:
    """A basis with the settings and with totals of the state."""
    table = state.table
    rows = table.view()
    present = table.present[rows]
    return msgspec.structs.replace(
        basis,
        settings=_switches(state.fold.settings),
        values=_values(state.fold.settings),
        nodes=int(present.sum()),
        chips=int(table.capacity[rows][present].sum()),
        chips_free=int(np.bitwise_count(table.free[rows][present]).sum()),
        jobs_held=len(state.fold.holdings),
    )


def _switches(settings: Settings) -> dict[str, bool]:
    """Boolean settings."""
    return {name: value for name, value in msgspec.structs.asdict(settings).items() if isinstance(value, bool)}


def _values(settings: Settings) -> dict[str, int | str]:
    """Settings that are not boolean."""
    return {name: value for name, value in msgspec.structs.asdict(settings).items() if not isinstance(value, bool)}


class _Case(NamedTuple):
    """A verdict to be explained.

    Attributes:
        snapshot: The nodes as it found them.
        gang: What it is on.
        verdict: The verdict.
        laid: Holdings of earlier verdicts of the record.
        missing_shards: Shards that did not answer.
    """

    snapshot: NodeSnapshot
    gang: Gang
    verdict: Verdict
    laid: Sequence[Holding] = ()
    missing_shards: MissingShards = MissingShards()


def _explained(case: _Case, basis: Basis) -> Explanation:
    snapshot, gang, verdict, laid, _ = case
    placement, refusal = verdict.placement, verdict.refusal
    asked = summary_of(snapshot.state, gang, placed=[holding.uid for holding in laid])
    if placement is None and refusal is not None and verdict.final:
        explanation = explain_rejection(gang.namespace, gang.name, gang.uid, refusal, basis=basis)
        explanation.asked = asked
        return explanation
    form = FORMS.get(gang.form)
    explanation = Explanation(
        namespace=gang.namespace,
        name=gang.name,
        uid=gang.uid,
        outcome="placed" if placement is not None else "waiting",
        basis=basis,
        attempt=gang.attempt,
        form=gang.form,
        title=form.title if form is not None else "",
        because=gang.form_because,
        pods=gang.pods,
        since_ms=basis.at_ms,
        asked=asked,
    )
    if placement is not None:
        is_same = _planned(snapshot, gang, placement, explanation)
        explanation.choices, do_fit = _choices(snapshot, gang, placement)
        beaten = any(
            choice.runner_up is not None and choice.runner_up.lost_by == "better" for choice in explanation.choices
        )
        is_drawn = _leaves_room(gang, snapshot.state) or _seeks_home(gang)
        is_best = (is_same and (not beaten or is_drawn)) or bool(basis.missing_shards)
        explanation.is_confirmed = basis.is_current or (do_fit and is_best)
        return explanation
    job = snapshot.state.jobs.get((gang.namespace, gang.name))
    if job is not None and job.uid == gang.uid and job.hold is not None:
        explanation.sentence, explanation.is_held = job.hold.words, True
    elif refusal is not None:
        _add_refusal(case, refusal, explanation)
    return explanation


def _add_refusal(case: _Case, refusal: Refusal, explanation: Explanation) -> None:
    """Add what a gang waits for."""
    snapshot, gang = case.snapshot, case.gang
    explanation.sentence, explanation.code = Namer(snapshot.scorer).sentence(refusal, gang), refusal.code
    explanation.field, explanation.value, explanation.expected = refusal.field, refusal.value, refusal.expected
    explanation.ahead, explanation.start_ms = refusal.ahead, refusal.start_ms
    if refusal.code in {INTERNAL, LATE, RULE} or refusal.queue is not None:
        return  # to plan it again would end with the same error, or take as long; room is not what a rule is about
    index = gang.tasks.index(refusal.task) if refusal.task in gang.tasks else 0
    shape = gang.request_class[index][0]
    explanation.task, explanation.chips = gang.tasks[index], shape.chips
    is_planned = shape.is_planned
    if refusal.code in {"no-room", "no-claim", "no-resource"}:
        holders = Holders(snapshot, case.laid)
        explanation.nearest = nearest_nodes(snapshot, shape, holders)
        explanation.domains = [] if is_planned else nearest_domains(snapshot, gang, shape, holders)
    if gang.demand is not None:
        usable, reasons = _usable(snapshot, gang, shape)
        lack = refusal if refusal.code != "larger-than-cluster" else None
        asked = WaitingGang(gang, lack, shape, usable, reasons, snapshot.jobs)
        explanation.switch, explanation.blocks = snapshot.topology(gang.demand).explain_waiting(asked)
    if is_heavy(gang.request_class, len(snapshot.state.table)):
        return  # each of its trial placements would take as long as a round
    explanation.unblocking = unblocking(snapshot.state, Waiting(gang, refusal, case.laid, case.missing_shards))


def _planned(snapshot: NodeSnapshot, gang: Gang, placement: Placement, explanation: Explanation) -> bool:
    """Add the plan of a gang, if it has one; false when planning again gives another plan."""
    if gang.demand is None:
        return True
    usable, _ = _usable(snapshot, gang, planned_shapes(gang)[0])
    topology, is_current = snapshot.topology(gang.demand), explanation.basis.is_current
    layouts, is_same = topology.explain_placed(gang, placement, usable, is_current=is_current)
    explanation.switch, explanation.blocks = layouts
    return is_same


def _usable(snapshot: NodeSnapshot, gang: Gang, shape: Shape) -> tuple[Fits, Reasons]:
    """Rows that can take any planned pod of a gang, and the reasons of all rows for a shape, shape (rows,)."""
    reasons = {
        known: ShapeEvaluation(snapshot, known).reasons for known in dict.fromkeys([*planned_shapes(gang), shape])
    }
    usable: Fits = np.logical_and.reduce([reasons[known] == _FITS for known in planned_shapes(gang)])
    return usable, reasons[shape]


def _choices(snapshot: NodeSnapshot, gang: Gang, placement: Placement) -> tuple[list[Choice], bool]:
    """The choice of each rank, and whether all of them fit.

    Choices are made in the order of the round. Pods without chips follow those with chips, near which they are placed.
    """
    settings = snapshot.scorer.settings
    evaluations = {shape: ShapeEvaluation(snapshot, shape) for shape, _ in gang.request_class}
    ranks_on: dict[str, list[int]] = {}
    choices: list[Choice] = []
    do_fit = True
    pods, seats = pods_of(placement), seats_of(placement)
    tasks = [index for index, (_, count) in enumerate(gang.request_class) for _ in range(count)]
    gang_nodes = [pod.node for pod in pods if pod.chips]
    if gang.is_plain and gang.beside:
        gang_nodes = snapshot.state.colocation.of_job(gang.namespace, gang.beside)
    order = placing_order(gang.request_class)
    bonus: dict[int, int] | None = None
    for rank in sorted(range(len(tasks)), key=lambda rank: order.index(tasks[rank])):
        pod, shape, seat = pods[rank], gang.request_class[tasks[rank]][0], seats[rank]
        evaluation = evaluations[shape]
        if bonus is None and not shape.chips and differs(settings).mixed_pods:
            bonus = near_bonus(snapshot.table, map(snapshot.table.row, gang_nodes))
            for known in (known for known in evaluations.values() if not known.shape.chips):
                known.prefer(bonus)
        row = snapshot.table.row(pod.node)
        do_fit = do_fit and evaluation.reasons[row] == _FITS
        is_free = seat is None
        better: LostBy = "reserved" if _leaves_room(gang, snapshot.state) else "better"
        alternatives = alternatives_of(snapshot, evaluation, row, ranks=ranks_on, better=better) if is_free else []
        choices.append(
            Choice(
                rank=rank,
                task=gang.tasks[tasks[rank]],
                node=pod.node,
                chips=list(pod.chips),
                score=int(evaluation.scores[row]),
                free=snapshot.usable(shape, row).bit_count(),
                affinity=snapshot.affinity(shape, row),
                runner_up=next(
                    (runner_up_of(alternative) for alternative in alternatives if alternative.lost_by != "taken"), None
                ),
                leaf=seat.leaf if seat is not None else "",
                superpod=seat.superpod if seat is not None else "",
                block=seat.block if seat is not None else -1,
                candidates=alternatives,
            )
        )
        ranks_on.setdefault(pod.node, []).append(rank)
        snapshot.take(pod, placement.share)
        if gang.profiles:
            snapshot.note(gang.profiles[tasks[rank]], row)
        for other in evaluations.values():
            other.refresh(row)
    return sorted(choices, key=lambda choice: choice.rank), bool(do_fit)


def _leaves_room(gang: Gang, state: State) -> bool:
    """Whether a gang leaves room that rules keep, so that its nodes need not be the best."""
    return gang.is_plain and built(state.fold.rules).keeps_room


def _seeks_home(gang: Gang) -> bool:
    """Whether constraints choose between nodes: a gang goes where all of it has room, or where it prefers to be."""
    profiles = [shape.profile for shape, _ in gang.request_class if shape.profile is not None]
    return any(profile.constraints.affinity or has_preferences(profile.constraints) for profile in profiles)
