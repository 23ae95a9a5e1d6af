"""Marks of pods: the annotations by which Berth knows a pod that it bound, and the code that proves them.

Whoever may write a pod may write these annotations too. The binder adds a message authentication code over them and
the uid of the pod; without a right one they count as absent, and the pod as one of another scheduler. See decision
ledger-marks. Pure.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from berth.formats.ascend.pod_annotations import MAC, MARKS

_PURPOSE: Final = b"berth pod marks 1"
_LENGTH_BYTES: Final = 4


class MarkProofs:
    """Proves and checks the marks of pods.

    Args:
        keys: Secret keys: the first makes codes, all of them prove one. Without any, marks are neither proved nor
            checked.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = tuple(keys)

    @property
    def are_checked(self) -> bool:
        """Whether marks need a code."""
        return bool(self._keys)

    def proved(self, uid: str, annotations: dict[str, str]) -> dict[str, str]:
        """Annotations of a Binding, with the code of its marks.

        Args:
            uid: Of the pod.
            annotations: Of the Binding.
        """
        if not self._keys:
            return annotations
        return {**annotations, MAC: _code(self._keys[0], uid, annotations).hex()}

    def counted(self, uid: str, annotations: dict[str, str]) -> dict[str, str]:
        """Annotations of a bound pod as they count: without marks that nothing proves; the same object if all count."""
        if not self._keys or annotations.keys().isdisjoint(MARKS) or self._is_proved(uid, annotations):
            return annotations
        return {key: value for key, value in annotations.items() if key not in MARKS}

    def _is_proved(self, uid: str, annotations: Mapping[str, str]) -> bool:
        stated = annotations.get(MAC, "").encode("utf-8", "surrogatepass")
        return any(
            hmac.compare_digest(stated, _code(key, uid, annotations).hex().encode("ascii")) for key in self._keys
        )


UNCHECKED: Final = MarkProofs()
"""Of a cell without keys."""


def _code(key: bytes, uid: str, annotations: Mapping[str, str]) -> bytes:
    """The code: each text has its length before it, so that no two lists of texts have the same bytes."""
    found = hmac.new(key, _PURPOSE, hashlib.sha256)
    for text in (uid, *(annotations.get(name, "") for name in MARKS)):
        data = text.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(_LENGTH_BYTES, "big"))
        found.update(data)
    return found.digest()
