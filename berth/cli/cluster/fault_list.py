"""Faults of nodes and chips, and the jobs that they affect, each in a row of its own."""

from collections.abc import Sequence

import msgspec

from berth.cli.cluster.cell_lists import NO_FAULTS
from berth.cli.cluster.drain_list import drains_of
from berth.cli.cluster.drain_rows import DrainRow, line_of, show_drains
from berth.cli.cluster.folded_nodes import judged_nodes
from berth.cli.cluster.held_restarts import ApprovalRow, HeldRestartRow, approvals_of, held_of, show_held
from berth.cli.output import age, print_progress, print_result, print_table
from berth.cli.tables import Table
from berth.core.chips.picking import ids_of
from berth.core.explain.recovery_status import recovery_of
from berth.core.explain.recovery_text import recovery_words
from berth.core.faults.cluster_faults import CellFaults, FaultyJob, faults_of
from berth.core.faults.model import NodeFault, PodFault, ToleratedPod
from berth.core.requests.fault_rules import Finding
from berth.core.state.cell import State
from berth.core.text import ranges
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.fault_facts import FAULT_SCHEDULING, GroupSeen
from berth.schemas.recovery import DISPLACED, RecoveryStatus
from berth.schemas.subjects import StreamName


class NodeFaultRow(msgspec.Struct, frozen=True):
    """A fault of a node or of its chips, as ``--json`` prints it."""

    node: str
    kind: str
    chips: list[int]
    """Chips with the fault; empty for a fault of the whole node."""
    reason: str
    reported_ms: int
    """Time of the last report of its source in milliseconds since 1970; 0 if it is unknown."""


class PodFaultRow(msgspec.Struct, frozen=True):
    """A faulty pod, as ``--json`` prints it."""

    rank: int
    node: str
    kind: str
    chips: list[int]
    reason: str
    master: bool
    hot_switch: bool


class ToleratedRow(msgspec.Struct, frozen=True):
    """A pod whose fault counts for nothing, as ``--json`` prints it."""

    rank: int
    node: str
    reason: str


class FindingRow(msgspec.Struct, frozen=True):
    """A label with a value without a meaning, as ``--json`` prints it."""

    key: str
    value: str
    expected: str
    contradicts: bool


class FaultyJobRow(msgspec.Struct, frozen=True):
    """A job with faults, as ``--json`` prints it."""

    namespace: str
    name: str
    uid: str
    attempt: int
    fault_scheduling: str
    """Value of the label; ``off`` without it."""
    retries: int
    """Value of ``fault-retry-times``; 0 without it, or if it is no number."""
    sub_health_strategy: str
    limit: str
    """Limit of escalation: pod, job or empty."""
    external: bool
    """Another component owns its faults."""
    sub_health_only: bool
    master: bool
    """Its rank 0 is faulty."""
    faults: list[PodFaultRow]
    tolerated: list[ToleratedRow]
    findings: list[FindingRow]


class RecoveringRow(msgspec.Struct, frozen=True):
    """A job that recovers from a fault."""

    namespace: str
    name: str
    recovery: RecoveryStatus
    line: str
    """The recovery as one line."""


class FaultsRow(msgspec.Struct, frozen=True):
    """All faults, as ``--json`` prints them."""

    nodes: list[NodeFaultRow]
    jobs: list[FaultyJobRow]
    drains: list[DrainRow] = []
    """What is drained, and the jobs there."""
    recoveries: list[RecoveringRow] = []
    """Jobs that recover now, by namespace and name."""
    held: list[HeldRestartRow] = []
    """Jobs that a fault does not restart yet, by namespace and name."""
    approvals: list[ApprovalRow] = []
    """Approvals that count now, by kind and domain."""


async def groups_of(bus: Bus) -> list[GroupSeen]:
    """What PodGroups say about faults; facts that do not decode are skipped."""
    found: list[GroupSeen] = []
    for stored in await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("group"),)):
        try:
            found.append(decode(stored.data, GroupSeen))
        except DecodeError as error:
            print_progress(f"fact {stored.subject} does not decode: {error.reason}")
    return found


async def faults_in(state: State, bus: Bus) -> CellFaults:
    """Faults of a cell as its facts and records show them.

    Args:
        state: State of the cell, which was read already.
        bus: Bus of the cell.

    Raises:
        TransientError: The bus did not answer.
    """
    judged = await judged_nodes(bus)
    conditions = {key: one.condition for key, one in judged.items()}
    return faults_of(state, await groups_of(bus), conditions)


def row_of(found: CellFaults, state: State | None = None) -> FaultsRow:
    """Faults in the form of ``--json``, with what is done about them as far as a state shows it."""
    return FaultsRow(
        [_node(fault) for fault in found.nodes],
        [_job(job) for job in found.jobs],
        recoveries=_recovering(state) if state is not None else [],
    )


def _recovering(state: State) -> list[RecoveringRow]:
    """Jobs whose newest recovery is not over."""
    found: list[RecoveringRow] = []
    for gang in sorted(state.fold.gangs.values(), key=lambda one: (one.namespace, one.name, one.uid)):
        holding = state.fold.holdings.get((gang.uid, gang.attempt))
        recovery = recovery_of(state, gang, holding)
        if recovery is None or gang.is_over or recovery.kind in DISPLACED:
            continue
        if not (recovery.open or (recovery.scope == "job" and not gang.placed_ms)):
            continue
        pods = holding.placement.pods() if holding is not None else len(recovery.ranks)
        found.append(RecoveringRow(gang.namespace, gang.name, recovery, recovery_words(recovery, pods)))
    return found


def _node(fault: NodeFault) -> NodeFaultRow:
    return NodeFaultRow(fault.node, fault.kind.value, list(ids_of(fault.chips)), fault.reason, fault.reported_ms)


def _job(job: FaultyJob) -> FaultyJobRow:
    rules = job.diagnosis.rules
    return FaultyJobRow(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        attempt=job.attempt,
        fault_scheduling=rules.scheduling_label or "off",
        retries=rules.retries,
        sub_health_strategy=rules.strategy,
        limit=rules.limit,
        external=rules.has_owner,
        sub_health_only=job.diagnosis.is_sub_health_only,
        master=job.diagnosis.has_master_fault,
        faults=[_pod(fault) for fault in job.diagnosis.faults],
        tolerated=[_tolerated(pod) for pod in job.diagnosis.tolerated],
        findings=[_finding(one) for one in rules.findings],
    )


def _pod(fault: PodFault) -> PodFaultRow:
    chips = list(ids_of(fault.chips))
    return PodFaultRow(
        fault.rank, fault.node, fault.kind.value, chips, fault.reason, fault.is_master, fault.is_hot_switch
    )


def _tolerated(pod: ToleratedPod) -> ToleratedRow:
    return ToleratedRow(pod.rank, pod.node, pod.reason)


def _finding(one: Finding) -> FindingRow:
    return FindingRow(one.key, one.value, one.expected, one.contradicts)


def listing_of(state: State, found: CellFaults, now_ms: int) -> FaultsRow:
    """Everything that ``berth faults`` shows.

    Args:
        state: The cell.
        found: Its faults.
        now_ms: The time.
    """
    return msgspec.structs.replace(
        row_of(found, state),
        drains=drains_of(state),
        held=held_of(state, now_ms),
        approvals=approvals_of(state, now_ms),
    )


def show(found: FaultsRow, now_ms: int) -> None:
    """Print drains, what is held back, faults of nodes, affected jobs, and labels without a meaning."""
    show_drains(map(line_of, found.drains), now_ms)
    show_held(found.held, found.approvals)
    if not found.nodes and not found.jobs and not found.recoveries:
        print_result(NO_FAULTS)
        return
    if found.nodes:
        table = Table("NODE", "FAULT", "CHIPS", "REPORTED", "REASON")
        for node in found.nodes:
            reported = f"{age(node.reported_ms, now_ms)} ago" if node.reported_ms else ""
            chips = ranges(node.chips)
            table.add_row(node.node, node.kind, chips, reported, node.reason)
        print_table(table)
    _show_pods([job for job in found.jobs if job.faults or job.tolerated])
    for line in findings_of(found):
        print_result(line)
    for one in found.recoveries:
        print_result(f"{one.namespace}/{one.name} recovers: {one.line}")


def _show_pods(affected: Sequence[FaultyJobRow]) -> None:
    """Print the pods of affected jobs."""
    if not affected:
        return
    table = Table("JOB", "RANK", "NODE", "FAULT", FAULT_SCHEDULING.upper(), "CAUSE")
    for job in affected:
        name = f"{job.namespace}/{job.name}"
        for pod in job.faults:
            rank = f"{pod.rank} (master)" if pod.master else str(pod.rank)
            table.add_row(name, rank, pod.node, pod.kind, job.fault_scheduling, pod.reason)
        for left in job.tolerated:
            table.add_row(name, str(left.rank), left.node, "none", job.fault_scheduling, left.reason)
    print_table(table)


def findings_of(found: FaultsRow) -> list[str]:
    """Labels of jobs without a meaning, one sentence each."""
    return [
        f"{job.namespace}/{job.name}: {one.key} is {one.value!r}, expected {one.expected}"
        f"{'; the PodGroup and the pods, or two pods, have different values' if one.contradicts else ''}"
        for job in found.jobs
        for one in job.findings
    ]


async def list_faults(bus: Bus, now_ms: int) -> FaultsRow:
    """Everything that ``berth faults`` shows, folded.

    Raises:
        TransientError: The bus did not answer.
    """
    state = await state_now(bus, SystemClock())
    return listing_of(state, await faults_in(state, bus), now_ms)
