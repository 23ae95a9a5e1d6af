"""Labels and annotations of jobs that are close to a known one: probably misspelled. They change no decision."""

import difflib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from berth.core.chips.form_selection import DISTRIBUTED, STRATEGY_310
from berth.core.levels.model import AFFINITY_CONFIG
from berth.core.requests.job_validation import (
    GANG_PODS,
    MIN_AVAILABLE,
    SHARE_AICORE,
    SHARE_HBM,
    SHARE_POLICY,
    SKIP_PLUGIN,
)
from berth.core.superpods.inference import SERVICE_LABEL, SP_FIT
from berth.core.superpods.validation import RA_BLOCK, SP_BLOCK, SUPER_POD_AFFINITY, UB_MEMORY
from berth.core.switches.model import TOR_AFFINITY
from berth.products.model import ANNOTATION_POLICY
from berth.schemas.fault_facts import (
    ELASTIC,
    FAULT_RETRY_TIMES,
    FAULT_SCHEDULING,
    FAULT_TYPE,
    POD_RESCHEDULING,
    PROCESS_RECOVER,
    RECOVER_POLICY,
    SUB_HEALTH_STRATEGY,
)
from berth.schemas.intake import JobRequest

_READ: Final = (
    TOR_AFFINITY,
    FAULT_SCHEDULING,
    FAULT_RETRY_TIMES,
    POD_RESCHEDULING,
    PROCESS_RECOVER,
    SUB_HEALTH_STRATEGY,
    ELASTIC,
    RECOVER_POLICY,
    SUPER_POD_AFFINITY,
    SERVICE_LABEL,
    SP_BLOCK,
    RA_BLOCK,
    SP_FIT,
    UB_MEMORY,
    AFFINITY_CONFIG,
    ANNOTATION_POLICY,
    STRATEGY_310,
    DISTRIBUTED,
    MIN_AVAILABLE,
    SKIP_PLUGIN,
    SHARE_AICORE,
    SHARE_HBM,
    SHARE_POLICY,
    GANG_PODS,
    "framework",
    "huawei.com/infer_service_schedule",
    "berth/run-for",
    "berth/priority-class",
    "scheduling.volcano.sh/queue-name",
)
"""Keys that a job may have, and that mean something to Berth."""
_OTHERS: Final = frozenset(
    {*_READ, FAULT_TYPE, "tp-block", "distributed-job", "scheduling.volcano.sh/group-min-member", "super-pod-id", "super-pod-rank"}
)  # fmt: skip
"""Keys that are spelled correctly, whoever reads them."""
_SHORT: Final = 8
_CLOSE_SHORT: Final = 0.9
_CLOSE: Final = 0.85
_CLOSE_PREFIX: Final = 0.8


@lru_cache(maxsize=4096)
def near_key(key: str) -> str:
    """The known key that is probably meant by another one; empty if the key is known or close to none.

    Case, ``-``, ``_`` and ``.`` do not count. Names of one or two letters' difference are close, and a key without the
    prefix of a known one.
    """
    if key in _OTHERS:
        return ""
    prefix, _, name = key.rpartition("/")
    best, most = "", 0.0
    for known in _READ:
        known_prefix, _, known_name = known.rpartition("/")
        likeness = _likeness(_folded(name), _folded(known_name))
        if prefix != known_prefix:
            is_near = _ratio(prefix, known_prefix) >= _CLOSE_PREFIX or (not prefix and likeness == 1)
            likeness = likeness if is_near else 0.0
        if likeness > most:
            best, most = known, likeness
    return best


def spelling_warnings(request: JobRequest) -> list[str]:
    """A sentence without a full stop for each key that is probably misspelled; labels first, in their order."""
    return [*_warnings("label", request.labels), *_warnings("annotation", request.annotations)]


def _warnings(kind: str, keys: Iterable[str]) -> list[str]:
    found = ((key, near_key(key)) for key in keys)
    return [f"{kind} {key!r} is not known, and is close to {near!r}" for key, near in found if near]


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")


def _likeness(name: str, known: str) -> float:
    """Ratio of equal letters; 0 if the names are not close."""
    if name == known:
        return 1.0
    ratio = _ratio(name, known)
    return ratio if ratio >= (_CLOSE_SHORT if len(known) <= _SHORT else _CLOSE) else 0.0


def _ratio(one: str, other: str) -> float:
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    return matcher.ratio() if matcher.real_quick_ratio() >= _CLOSE_PREFIX else 0.0
