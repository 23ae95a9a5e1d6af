"""What histories were made of: a count for each feature, and the features that a long run must have had."""

from collections import Counter
from typing import Final, get_args

from berth.core.requests.job_validation import ValidJob, validate
from berth.core.state.cell import State
from berth.core.state.ledger import Folded, Holding
from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.switches.placed import switch_of
from berth.products.catalogue import FORMS
from berth.schemas.columns import unpack
from berth.schemas.facts import HealthSeen, JobSeen, NodeHealth, NodesSeen, PodPhase, PodsSeen, TopologySeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import ReleaseReason, Round, Settings, Verdict
from berth.schemas.message import Message
from berth.schemas.recovery import DISPLACED
from berth.schemas.refusal import Code, NodeReason, Refusal
from tests.fuzz import constraint_tally
from tests.fuzz.constraint_check import CHECKED, RECOVERED, REFUSED
from tests.support.placed_parts import the_block, the_switch

CHECKS: Final = (
    "check: invariants",
    "check: accounts",
    CHECKED,
    RECOVERED,
    REFUSED,
    "check: shards",
    "check: snapshot",
    "check: reader from a snapshot",
    "check: replay",
    "check: replay from a snapshot",
    "check: sleepers",
)
NEVER: Final[dict[str, str]] = {
    "refused: undecodable": "of messages that do not decode, which intake sets aside before it judges",
    "refused: larger-than-round": "of gangs of more than 4 MB, too large for a history of many",
    "node: UNKNOWN_PRODUCT": "given by no check of this release",
    "node: FITS": "no reason",
}
"""What is not to be seen, and why."""
_DEFAULT: Final = Settings()


def required() -> list[str]:
    """Features that a run of a minute must have had."""
    names = [
        *CHECKS,
        *(f"placed: {form}" for form in FORMS),
        "placed: without chips",
        *(f"refused: {code}" for code in get_args(Code)),
        *(f"node: {reason.name}" for reason in NodeReason),
        *(f"fact: {kind}" for kind in ("node", "health", "topology", "pod", "job", "outcome", "timer", "undecodable")),
        *(f"setting: {name}" for name in Settings.__struct_fields__),
        *(f"policy: {policy}" for policy in ("skip", "fifo", "easy", "conservative")),
        *(f"preset: {preset}" for preset in ("defaults", "reference_parity")),
        *(f"health: {level.name}" for level in NodeHealth),
        *(f"chips: {mask}" for mask in ("unhealthy", "recovering", "network_unhealthy", "withheld", "network unknown")),
        *(f"pods: {phase.name}" for phase in PodPhase),
        *(f"pods: {what}" for what in ("none", "of nobody's job", "of another scheduler", "of another uid")),
        *(f"outcome: {state}" for state in ("bound", "failed", "evicted")),
        *(f"released: {reason}" for reason in get_args(ReleaseReason)),
        *(f"evicted: {reason}" for reason in ("bind-failed", "cancelled", "vanished")),
        *(f"job: {state}" for state in ("accepted", "rejected", "cancelled", "updated", "rejected beside another")),
        *(f"other uid: {phase}" for phase in ("placed", "ending")),
        *(f"name is given anew: {phase}" for phase in ("placed", "ending", "waiting")),
        *(f"record: {what}" for what in ("epoch", "lost", "behind another", "void", "silent shards")),
        *(f"leaves: {what}" for what in ("1.0", "2.0", "single-layer", "normal-schema", "large-model-schema")),
        *(f"blocks: {what}" for what in ("a3", "850", "rack", "levels", "soft", "service", "mindie")),
        *(f"gang: {what}" for what in ("several shapes", "pods without chips", "soft share", "part", "set aside")),
        *(
            f"nodes: {what}"
            for what in ("gone", "cordoned", "not ready", "shared", "below leaves", "in SuperPoDs", "in racks")
        ),
        *(f"recovery: {what}" for what in ("grace", "force", "mark", "pod", "job", "CardUnhealthy", "without places")),
        *(f"recovery: {what}" for what in ("with places", "a later step", "Drain", "NodeUnhealthy", "pod-failed")),
        *(f"recovery: {what}" for what in ("backup", "of a rank with a backup pod")),
        *(f"held: {what}" for what in ("places", "placed again", "no longer")),
        *(f"admission: {what}" for what in ("admitted", "waits")),
        "released: ranks",
        "released: to be placed again",
        "adopted",
        "adopted: in part",
        "fact: tombstone of a job",
        *constraint_tally.REQUIRED,
    ]
    return [name for name in names if name not in NEVER]


def missing(count: Counter[str]) -> list[str]:
    """Required features that were never there."""
    return [name for name in required() if not count[name]]


def note_record(count: Counter[str], record: Round, state: State) -> None:
    """Note a record that is to be stored."""
    count["record: round"] += 1
    count["record: silent shards"] += bool(record.missing)
    for verdict in record.verdicts:
        _note_verdict(count, verdict, state)
        count["held: placed again"] += verdict.placement is not None and verdict.uid in state.fold.held
    for held in record.held:
        count["held: places" if held.ranks else "held: no longer"] += 1
    for eviction in record.evictions:
        count[f"evicted: {eviction.reason}"] += 1
    for release in record.releases:
        count[f"released: {release.reason}"] += 1
        count["released: ranks"] += bool(release.ranks)
        count["released: to be placed again"] += release.again
    for recovery in record.recoveries:
        places = "with places" if recovery.placement is not None else "without places"
        count[f"recovery: {recovery.how}"] += 1
        count[f"recovery: {recovery.scope}"] += 1
        count[f"recovery: {recovery.kind}"] += 1
        count[f"recovery: {places}"] += 1
        count["recovery: a later step"] += recovery.step > 1
        is_part = recovery.kind in DISPLACED and recovery.scope == "pod"
        count["recovery: ranks given up"] += is_part and recovery.how == "grace"
        count["recovery: ranks come back"] += is_part and recovery.how == "place"
        backups = state.fold.holdings[recovery.uid, recovery.attempt].backups()
        count["recovery: of a rank with a backup pod"] += not backups.keys().isdisjoint(recovery.ranks)
    for one in record.admissions:
        count["admission: admitted" if one.refusal is None else "admission: waits"] += 1
    for adoption in record.adoptions:
        count["adopted"] += 1
        count["adopted: in part"] += adoption.uid in state.short


def _note_verdict(count: Counter[str], verdict: Verdict, state: State) -> None:
    placement, refusal = verdict.placement, verdict.refusal
    if refusal is not None:
        _note_refusal(count, refusal)
    if placement is None:
        return
    job = state.jobs.get((verdict.namespace, verdict.name))
    if job is not None and job.request is not None:
        count[f"placed: {form_of(job.request, state.fold.settings) or 'without chips'}"] += 1
    if placement.share is not None:
        count["gang: soft share"] += 1
    if switch_of(placement) is not None:
        count[f"leaves: {the_switch(placement).policy}"] += 1
        count[f"leaves: {the_switch(placement).tor_affinity}"] += 1
        count[f"leaves: rule {the_switch(placement).rule}"] += 1
    if block_of(placement) is not None:
        count[f"blocks: {the_block(placement).variant}"] += 1
        for phase in the_block(placement).phases:
            count[f"blocks: by {phase}"] += 1


def _note_refusal(count: Counter[str], refusal: Refusal) -> None:
    count[f"refused: {refusal.code}"] += 1
    for one in refusal.counts:
        count[f"node: {NodeReason(one.reason).name}"] += 1
    if refusal.blocks is not None:
        count[f"lacks: blocks {refusal.blocks.rule}"] += 1
    if refusal.switch is not None:
        count[f"lacks: leaves {refusal.switch.rule}"] += 1


def form_of(request: JobRequest, settings: Settings) -> str:
    """Product form of a request that is sound."""
    valid = validate(request, settings)
    return valid.form if isinstance(valid, ValidJob) else ""


def note_folded(count: Counter[str], folded: Folded) -> None:
    """Note what became of a record."""
    count["record: epoch"] += folded.epoch
    count["record: void"] += bool(folded.void)
    for gang in folded.gangs:
        if gang.phase == "failed" and gang.refusal is not None and gang.refusal.code == "bind-failed":
            count["refused: bind-failed"] += 1


def note_settings(count: Counter[str], settings: Settings) -> None:
    """Note the settings of an epoch."""
    count[f"policy: {settings.queue_policy}"] += 1
    count[f"preset: {'reference_parity' if settings.reference_parity else 'defaults'}"] += 1
    for name in Settings.__struct_fields__:
        value = getattr(settings, name)
        count[f"setting: {name}"] += value != getattr(_DEFAULT, name)


def note_request(count: Counter[str], request: JobRequest) -> None:
    """Note what a request asks."""
    chips = [task.chips for task in request.tasks]
    count["gang: several shapes"] += len(set(filter(None, chips))) > 1
    count["gang: pods without chips"] += bool(chips) and not all(chips)
    count["gang: part"] += "berth/gang-pods" in request.annotations
    count["blocks: soft"] += request.labels.get("super-pod-affinity") == "soft"
    count["blocks: service"] += "inferserviceid" in request.labels
    count["blocks: mindie"] += "jobID" in request.labels


def note_verdict(count: Counter[str], verdict: JobSeen, job: JobSeen | None) -> None:
    """Note what became of a request."""
    if verdict.refusal is not None:
        count[f"refused: {verdict.refusal.code}"] += 1
    if verdict.rejection is not None and (job is None or verdict.rejection != job.rejection):
        count[f"refused: {verdict.rejection.refusal.code}"] += 1
        count["job: rejected beside another"] += 1
    if job is not None and job.uid == verdict.uid and verdict.request != job.request:
        count["job: updated"] += 1
    count[f"job: {verdict.state}"] += 1


def note_other_uid(count: Counter[str], holding: Holding) -> None:
    """Note a fact of another uid under the name of a holding."""
    count[f"other uid: {'ending' if holding.ending else 'placed'}"] += 1
    count["pods: of another uid"] += 1


def note_pods(count: Counter[str], fact: PodsSeen) -> None:
    """Note phases of pods."""
    for phase in set(fact.phase):
        count[f"pods: {PodPhase(phase).name}"] += 1
    count["pods: none"] += not fact.phase


def note_ground(count: Counter[str], fact: Message) -> None:
    """Note what facts say of nodes."""
    if isinstance(fact, HealthSeen):
        for level in set(fact.level):
            count[f"health: {NodeHealth(level).name}"] += 1
        for name in ("unhealthy", "recovering", "network_unhealthy", "withheld"):
            count[f"chips: {name}"] += any(getattr(fact, name))
        count["chips: network unknown"] += 0 in fact.network_known
    elif isinstance(fact, NodesSeen):
        count["nodes: gone"] += not fact.names
        for kind in fact.classes:
            count["nodes: cordoned"] += kind.cordoned
            count["nodes: not ready"] += not kind.ready
            count["nodes: shared"] += kind.labels.get("huawei.com/scheduler.chip1softsharedev.enable") == "true"
        for name, column in (
            ("below leaves", fact.leaf_index),
            ("in SuperPoDs", fact.superpod_index),
            ("in racks", fact.rack_index),
        ):
            count[f"nodes: {name}"] += any(unpack(column, 4))
    elif isinstance(fact, TopologySeen):
        count["topology: gone"] += not fact.leaves
        count[f"topology: {fact.level or 'double_layer'}"] += 1
