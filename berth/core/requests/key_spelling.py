"""Warnings about requests: labels and annotations that are close to a known one are probably misspelled.

They change no decision.

Whoever submits a job chooses its keys, so what is compared is bounded: few keys of a job, short ones, those without a
prefix or with one that is close to a known one, and only with names that have nearly the same letters.
"""

import difflib
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from berth.core.chips.form_selection import DISTRIBUTED, STRATEGY_310
from berth.core.requests.job_validation import (
    GANG_PODS,
    SHARE_AICORE,
    SHARE_HBM,
    SHARE_POLICY,
)
from berth.core.topologies.job_registry import JOB_TOPOLOGIES
from berth.products.model import ANNOTATION_POLICY, MIN_AVAILABLE, SKIP_PLUGIN
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
from berth.schemas.intake import PREEMPTION_KEYS, JobRequest

_READ: Final = (
    *(key for topology in JOB_TOPOLOGIES for key in topology.keys),
    FAULT_SCHEDULING,
    FAULT_RETRY_TIMES,
    POD_RESCHEDULING,
    PROCESS_RECOVER,
    SUB_HEALTH_STRATEGY,
    ELASTIC,
    RECOVER_POLICY,
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
    *sorted(PREEMPTION_KEYS),
)
"""Keys that a job may have, and that mean something to Berth."""
_OTHERS: Final = frozenset(
    {*_READ, FAULT_TYPE, "tp-block", "distributed-job", "scheduling.volcano.sh/group-min-member", "super-pod-id", "super-pod-rank"}
)  # fmt: skip
"""Keys that are spelled correctly, whoever reads them."""
KEY_MAX: Final = 128
"""Longest key that is compared; a known one is much shorter."""
KEYS_MAX: Final = 32
"""Most keys of a job that are compared, of labels and of annotations."""
_SHORT: Final = 8
_CLOSE_SHORT: Final = 0.9
_CLOSE: Final = 0.85
_CLOSE_PREFIX: Final = 0.8


class _Text(NamedTuple):
    """A text and how often it has each letter."""

    text: str
    letters: Counter[str]

    @classmethod
    def of(cls, text: str) -> "_Text":
        return cls(text, Counter(text))


class _Known(NamedTuple):
    """A known key: whole, and its folded name."""

    key: str
    name: _Text


def is_read(key: str) -> bool:
    """Whether a key of a job means something to Berth, or is spelled correctly, whoever reads it."""
    return key in _OTHERS


@lru_cache(maxsize=4096)
def near_key(key: str) -> str:
    """The known key that is probably meant by another one; empty if the key is known, too long or close to none.

    Case, ``-``, ``_`` and ``.`` do not count. Names of one or two letters' difference are close, and a key without the
    prefix of a known one.
    """
    if key in _OTHERS or len(key) > KEY_MAX:
        return ""
    prefix, _, written = key.rpartition("/")
    near = _near_prefixes(prefix)
    if not near and prefix:
        return ""
    name = _Text.of(_folded(written))
    best, most = "", 0.0
    for known_prefix, known in _KNOWN:
        if known_prefix in near:
            likeness = _likeness(name, known.name)
        else:
            likeness = float(not prefix and name.text == known.name.text)
        if likeness > most:
            best, most = known.key, likeness
    return best


def request_warnings(request: JobRequest) -> list[str]:
    """A sentence without a full stop for all that is said of a request although it is accepted."""
    ignored = request.preemption.ignored if request.preemption is not None else ()
    return [*spelling_warnings(request), *ignored]


def spelling_warnings(request: JobRequest) -> list[str]:
    """A sentence without a full stop for each key that is probably misspelled; labels first, in their order.

    Of labels and of annotations the first :data:`KEYS_MAX` are looked at that may be meant for Berth.
    """
    if not request.labels and not request.annotations:
        return []
    return [*_warnings("label", request.labels), *_warnings("annotation", request.annotations)]


def misspelled(keys: Iterable[str]) -> dict[str, str]:
    """Keys that are probably misspelled, with the known keys that are meant; in their order.

    The first :data:`KEYS_MAX` are compared whose prefix allows it; the rest counts as correct.
    """
    found: dict[str, str] = {}
    left = KEYS_MAX
    for key in keys:
        if key in _OTHERS or len(key) > KEY_MAX or not _near_prefixes(key.rpartition("/")[0]):
            continue
        if not left:
            break
        left -= 1
        if near := near_key(key):
            found[key] = near
    return found


def _warnings(kind: str, keys: Iterable[str]) -> list[str]:
    return [f"{kind} {key!r} is not known, and is close to {near!r}" for key, near in misspelled(keys).items()]


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")


_KNOWN: Final = [(key.rpartition("/")[0], _Known(key, _Text.of(_folded(key.rpartition("/")[2])))) for key in _READ]
"""Known keys with their prefixes, in order: of equally close ones the first is meant."""
_PREFIXES: Final = {prefix: _Text.of(prefix) for prefix, _ in _KNOWN}


@lru_cache(maxsize=1024)
def _near_prefixes(prefix: str) -> frozenset[str]:
    """Prefixes of known keys that are close to one; the prefix itself if it is one of them."""
    own = _Text.of(prefix)
    return frozenset(known for known, text in _PREFIXES.items() if _ratio(own, text, _CLOSE_PREFIX) >= _CLOSE_PREFIX)


def _likeness(name: _Text, known: _Text) -> float:
    """Ratio of equal letters; 0 if the names are not close."""
    if name.text == known.text:
        return 1.0
    least = _CLOSE_SHORT if len(known.text) <= _SHORT else _CLOSE
    ratio = _ratio(name, known, least)
    return ratio if ratio >= least else 0.0


def _ratio(one: _Text, other: _Text, least: float) -> float:
    """Ratio of equal letters; 0 if it is certainly below ``least``, which most pairs of texts show at a glance."""
    lengths = (len(one.text), len(other.text))
    needed = least * sum(lengths) / 2
    if min(lengths) < needed or (one.letters & other.letters).total() < needed:
        return float(one.text == other.text)
    return difflib.SequenceMatcher(None, one.text, other.text, autojunk=False).ratio()
