"""Explanations for readers who may not read all namespaces: jobs of the others have no names there.

Their numbers and times stay: chips that are held are no secret, and without them nothing would be explained.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from berth.core.explain.model import Explanation
from berth.core.explain.refusal_text import HIDDEN_JOB, without_name

MayRead = Callable[[str], bool]
"""Whether the reader may read a namespace."""
_NAMES: Final = frozenset({"job", "ahead", "first"})
"""Fields with a job as ``namespace/name``, or with nothing."""
_LISTS: Final = frozenset({"held_by", "taken_by"})
"""Fields with several; those without a namespace are ranks of the job itself."""


def restricted(explanation: Explanation, may_read: MayRead) -> Explanation:
    """An explanation without the names and uids of jobs that the reader may not see.

    Args:
        explanation: With all names.
        may_read: Whether the reader may read a namespace.
    """
    found: Explanation = without_names(explanation, may_read)
    if is_hidden(explanation.ahead, may_read):
        found.sentence = without_name(explanation.sentence, explanation.ahead)
    return found


def is_hidden(job: str, may_read: MayRead) -> bool:
    """Whether a reader may not see a job, as ``namespace/name``."""
    namespace, slash, _ = job.partition("/")
    return bool(slash) and not may_read(namespace)


def without_names(value: Any, may_read: MayRead) -> Any:  # noqa: ANN401  # any part of an explanation
    """A part of an explanation, an expected start or a list of such, without the names of jobs that are hidden."""
    if isinstance(value, list):
        return [without_names(one, may_read) for one in value]
    if not isinstance(value, msgspec.Struct):
        return value
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        found = getattr(value, name)
        if name in _NAMES and isinstance(found, str):
            if is_hidden(found, may_read):
                changes[name] = HIDDEN_JOB
        elif name in _LISTS:
            changes[name] = list(dict.fromkeys(HIDDEN_JOB if is_hidden(one, may_read) else one for one in found))
        else:
            changes[name] = without_names(found, may_read)
    if "job" in changes and "uid" in changes:
        changes["uid"] = ""  # of that job
    return msgspec.structs.replace(value, **changes)
