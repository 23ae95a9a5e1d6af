"""What bound pods say of the ledger: the newest record by which any of them was bound. Pure."""

from typing import Final

from berth.formats.ascend.ledger_mark import LedgerMark, mark_of
from berth.formats.ascend.pod_annotations import JOB_UID, LEDGER
from berth.formats.kubernetes.objects import Pod
from berth.schemas.facts import LedgerSeen, Witness, is_repeat
from berth.schemas.units import UnixMs

_NODES_MAX: Final = 8
"""Most nodes whose newest pods a fact names."""
_STREAMS_MAX: Final = 64
"""Most streams of which something is kept beside the one in which the ledger is: who makes pods may name others."""


class LedgerMarks:
    """The newest record of each ledger that a bound pod names, since the start of the process; also of pods gone since.

    Nothing is due before :meth:`begin`. A fact says that all pods that were bound when its stream was first seen are in
    the facts before it, so it is due only after those.
    """

    def __init__(self) -> None:
        self._newest: dict[str, LedgerMark] = {}
        self._witnesses: dict[str, dict[str, Witness]] = {}
        """The pod of each node that names the newest record, by stream and node; few nodes of each stream."""
        self._stream = ""
        self._published: LedgerSeen | None = None

    def begin(self, stream: str) -> bool:
        """Take note of the stream in which the ledger is; returns whether it is another than before."""
        is_new = stream != self._stream
        self._stream = stream
        return is_new

    def restore(self, published: LedgerSeen) -> None:
        """Take note of the published fact; what it says of pods is found again in their annotations."""
        self._published = published

    def note(self, pod: Pod) -> None:
        """Take note of a pod; one that is not bound, or not by Berth, says nothing."""
        meta = pod.metadata
        text = meta.annotation(LEDGER)
        if not text or not pod.spec.node_name or not meta.annotation(JOB_UID):
            return
        mark = mark_of(text)
        if mark is None:
            return
        known = self._newest.get(mark.stream)
        if known is None or mark.sequence > known.sequence:
            self._newest[mark.stream] = mark
        self._note_witness(mark.stream, Witness(f"{meta.namespace}/{meta.name}", pod.spec.node_name, mark.sequence))
        if self._stream and len(self._newest) > _STREAMS_MAX:  # before, the pods that are there bound them
            oldest = next(stream for stream in self._newest if stream != self._stream)
            del self._newest[oldest], self._witnesses[oldest]

    def _note_witness(self, stream: str, one: Witness) -> None:
        found = self._witnesses.setdefault(stream, {})
        if one.node in found and one.sequence <= found[one.node].sequence:
            return
        found[one.node] = one
        if len(found) > _NODES_MAX:
            del found[min(found, key=lambda node: (found[node].sequence, node))]

    @property
    def is_confirmed(self) -> bool:
        """Whether the published fact is about the stream in which the ledger is, as far as that is known."""
        return not self._stream or (self._published is not None and self._published.stream == self._stream)

    def due(self, now_ms: UnixMs) -> LedgerSeen | None:
        """Fact that differs from the published one; None if there is none."""
        if not self._stream:
            return None
        mark = self._newest.get(self._stream) or LedgerMark(self._stream, 0, 0)
        witnesses = sorted(self._witnesses.get(self._stream, {}).values(), key=lambda one: (-one.sequence, one.node))
        fact = LedgerSeen(*mark, at_ms=now_ms, witnesses=witnesses)
        return None if is_repeat(self._published, fact) else fact

    def note_published(self, fact: LedgerSeen) -> None:
        """Take note that a fact is stored."""
        self._published = fact
