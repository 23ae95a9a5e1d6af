"""Draws about faults: settings, labels of PodGroups, and what facts say of pods that fail or recover."""

import random
from typing import Any, Final

import msgspec

from berth.core.state.ledger import Holding
from berth.schemas.columns import pack, unpack
from berth.schemas.facts import OutcomeSeen, PodMarks, PodPhase, PodsSeen
from berth.schemas.fault_facts import BackupPod, GroupSeen, ReplacementsSeen
from berth.schemas.ledger import Settings

TRAIT: Final = "faults"
RECOVERING: Final = "recovering"
"""Feature of histories in which gangs that run break and recover."""
_TIMES: Final[dict[str, tuple[int, ...]]] = {
    "grace_over_ms": (2_000, 5_000),
    "fault_wait_ms": (0, 3, 40),
    "escalate_block_ms": (0, 1, 3),
    "escalate_superpod_ms": (3, 4, 8),
    "escalate_job_ms": (8, 9, 30),
    "not_ready_ms": (1, 20),
    "fault_settle_ms": (1, 5),
    "restarts_at_once": (1, 2),
    "restart_share_percent": (1, 50, 100),
    "hold_places_ms": (3, 40, 5_000),
}
_LABELS: Final[dict[str, tuple[str, ...]]] = {
    "fault-scheduling": ("grace", "grace", "force", "external-force", "off", "grace|force"),
    "pod-rescheduling": ("on", "on", "off"),
    "process-recover-enable": ("on", "pause"),
    "fault-retry-times": ("1", "3", "0", "many"),
    "subHealthyStrategy": ("graceExit", "forceExit", "hotSwitch", "ignore"),
    "elastic-scheduling": ("on",),
}
_PLAIN_LABELS: Final[dict[str, tuple[str, ...]]] = {
    "fault-scheduling": ("grace", "force"),
    "pod-rescheduling": ("on", "on", "on", "off"),
    "process-recover-enable": ("pause", "pause", "pause", "on"),
    "fault-retry-times": ("1", "3"),
    "subHealthyStrategy": ("graceExit", "forceExit", "hotSwitch"),
}
"""Those of which pods leave one by one."""
_MARKS: Final[tuple[dict[str, str], ...]] = (
    {"fault-type": "Separate"},
    {"fault-type": "SubHealth"},
    {"fault-type": "software"},
    {"backupNewPodName": "b", "fault-type": "SubHealth", "needVolcanoOpe": "delete"},
    {"training.kubeflow.org/replica-type": "worker"},
)


def draw_fault_settings(chance: random.Random) -> dict[str, Any]:
    """Fields of the settings of an epoch in which faults are handled."""
    fields: dict[str, Any] = {"plan_before_delete": chance.random() < 0.4}
    for name, values in _TIMES.items():
        if chance.random() < 0.7:
            fields[name] = chance.choice(values)
    steps = sorted(fields.get(name, value) for name, value in _steps())
    return fields | dict(zip((name for name, _ in _steps()), steps, strict=True))


def _steps() -> list[tuple[str, int]]:
    names = ("escalate_block_ms", "escalate_superpod_ms", "escalate_job_ms")
    default = Settings()
    return [(name, getattr(default, name)) for name in names]


def group_of(job: str, now_ms: int, chance: random.Random, traits: tuple[str, ...]) -> GroupSeen:
    """What the PodGroup of a job says about faults; nothing in some cases."""
    labels = {key: chance.choice(values) for key, values in _LABELS.items() if chance.random() < 0.35}
    if RECOVERING in traits and chance.random() < 0.85:
        labels = {key: chance.choice(values) for key, values in _PLAIN_LABELS.items() if chance.random() < 0.8}
    if chance.random() < 0.85:
        labels["fault-scheduling"] = chance.choice(("grace", "force", "external-grace"))
    if "elastic-scheduling" in labels and chance.random() < 0.7:
        del labels["elastic-scheduling"]
    annotations: dict[str, str] = {}
    if chance.random() < 0.2:
        annotations["huawei.com/recover_policy_path"] = chance.choice(("pod", "job"))
    if chance.random() < 0.05:
        annotations["ProcessRecoverStrategy"] = ""
    is_gone = chance.random() < 0.1
    return GroupSeen(
        "default",
        f"pg-{job}",
        "",
        is_gone,
        {} if is_gone else dict(sorted(labels.items())),
        {} if is_gone else annotations,
        [] if is_gone else [job],
        now_ms,
    )


def replacements_of(holding: Holding, now_ms: int, chance: random.Random) -> ReplacementsSeen:
    """Ranks whose new pods wait: mostly those without a place, sometimes others, sometimes none; and backup pods."""
    ranks = list(holding.unplaced)
    if chance.random() < 0.3:
        ranks = sorted(chance.sample(range(holding.placement.pods()), chance.randint(0, holding.placement.pods())))
    since_ms = pack([max(0, now_ms - chance.randint(0, 20_000)) for _ in ranks], 8) if chance.random() < 0.5 else b""
    backups: list[BackupPod] = []
    if chance.random() < 0.3:
        backed = sorted(chance.sample(range(holding.placement.pods() + 1), 1))
        backups = [a_backup(holding, rank, str(chance.randint(0, 1))) for rank in backed]
    return ReplacementsSeen("default", holding.name, holding.uid, pack(ranks, 4), now_ms, since_ms, backups)


def a_backup(holding: Holding, rank: int, number: str) -> BackupPod:
    """A backup pod of a rank, which has a uid of its own for each number."""
    return BackupPod(rank, f"{holding.name}-{rank}-b", f"{holding.uid}-{rank}-b{number}")


def faulty_pods(fact: PodsSeen, holding: Holding, now_ms: int, chance: random.Random) -> PodsSeen:
    """The same pods with exit codes, marks, labels and steps: most of the newest steps, some of older ones."""
    ranks = unpack(fact.rank, 4)
    fact = _alive(fact, chance)
    codes = [chance.choice((0, 0, 0, 1, 137)) for _ in ranks] if chance.random() < 0.4 else []
    marked = sorted(rank for rank in ranks if chance.random() < 0.2) if chance.random() < 0.4 else []
    steps = [holding.step if chance.random() < 0.8 else chance.randint(0, holding.step) for _ in ranks]
    steering = {"fault-scheduling": chance.choice(("grace", "force"))} if chance.random() < 0.3 else {}
    return msgspec.structs.replace(
        fact,
        exit_codes=pack(codes, 4) if any(codes) else b"",
        marks=[PodMarks(rank, chance.choice(_MARKS)) for rank in marked],
        steps=pack(steps, 4) if any(steps) else b"",
        steering=steering,
        at_ms=now_ms,
    )


def _alive(fact: PodsSeen, chance: random.Random) -> PodsSeen:
    """More pods run than in other histories: a job that is over does not recover."""
    if chance.random() < 0.5:
        return fact
    return msgspec.structs.replace(fact, phase=bytes(PodPhase.RUNNING for _ in fact.phase))


def later_outcome(fact: OutcomeSeen, holding: Holding, chance: random.Random) -> OutcomeSeen:
    """The same with how far the binder is with the steps of a recovery."""
    step = chance.randint(0, holding.step)
    return msgspec.structs.replace(fact, step=step, done=chance.randint(0, step))
