"""Subjects and streams as data.

Every subject starts with ``berth.<cell>.``. A name inside a subject is escaped by :func:`token`, which is reversible:
letters, digits, ``-`` and ``_`` stay; every other byte of the UTF-8 form becomes ``=`` and two upper-case hex digits;
the empty name becomes ``=``. So the server never sees dots, blanks or wildcards inside a name.

Longer than 400 lines because every subject has its method here, and every stream its description.
"""

from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

import msgspec

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_EMPTY: Final = "="
_ESCAPE_LENGTH: Final = 3
_SHOWN_MAX: Final = 300
PLAIN_CHARACTERS_MAX: Final = 1_000
"""Most characters of a text that becomes a header, such as the uid of a job."""


def token(name: str) -> str:
    """Subject token of ``name``; :func:`untoken` is the inverse."""
    raw = name.encode()
    if not raw:
        return _EMPTY
    if _PLAIN.issuperset(raw):
        return name
    return "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in raw)


def untoken(text: str) -> str:
    """Name of the token ``text``.

    Raises:
        ValueError: :func:`token` does not return ``text`` for any name.
    """
    if text == _EMPTY:
        return ""
    out = bytearray()
    position = 0
    while position < len(text):
        char = text[position]
        if char == "=":
            digits = text[position + 1 : position + _ESCAPE_LENGTH]
            if len(digits) != _ESCAPE_LENGTH - 1 or digits != digits.upper():
                raise ValueError(f"token {_shown(text)} has a broken escape at {position}")
            out.append(int(digits, 16))
            position += _ESCAPE_LENGTH
        else:
            out += char.encode()
            position += 1
    name = out.decode()
    if token(name) != text:
        raise ValueError(f"token {_shown(text)} is not in its only form")
    return name


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]!r}…"


def is_plain(text: str) -> bool:
    """Whether a text may become a header or the id of a message: it is what it was after that.

    It has up to :data:`PLAIN_CHARACTERS_MAX` characters that can be printed, and no space at its ends.
    """
    return len(text) <= PLAIN_CHARACTERS_MAX and text.isprintable() and text == text.strip()


class StreamName(StrEnum):
    """Streams of a cell; the stream's name on the server is ``<NAME>_<token(cell)>``."""

    INTAKE = "INTAKE"
    FACTS = "FACTS"
    LATEST = "LATEST"
    LEDGER = "LEDGER"
    SNAPSHOT = "SNAPSHOT"
    STATUS = "STATUS"
    SUMMARY = "SUMMARY"
    LEASE = "LEASE"
    DEAD = "DEAD"
    SKIPS = "SKIPS"
    EVENTS = "EVENTS"


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a stream that do not depend on the installation.

    ``max_age_s`` and ``max_bytes`` of 0 mean no limit; ``per_subject`` of 1 keeps the latest message of each subject.
    """

    name: StreamName
    subjects: tuple[str, ...] = ()
    mirror_of: StreamName | None = None
    per_subject: int = 0
    max_age_s: int = 0
    max_bytes: int = 0
    allow_ttl: bool = False
    storage: Literal["file", "memory"] = "file"
    has_floor: bool = False
    """It keeps the latest message of each subject forever, so what is over is passed by a floor; see decision
    old-jobs."""
    is_view: bool = False
    """Its content follows from other streams: on one replica the server may acknowledge a message before it is on
    disk."""
    has_set_age: bool = False
    """A setting of the service that writes it decides ``max_age_s``; the value here is the default."""
    backup: Literal["all", "latest", "old", "none"]
    """What a backup holds of it: ``all`` messages with their sequences; the ``latest`` ones, whose sequences do not
    matter; of a mirror those that are ``old``: not in its origin any more; or ``none``: it is made again."""


_DAY_S: Final = 86_400
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@lru_cache(maxsize=64)
def _root(cell: str) -> str:
    """Prefix of the subjects of a cell, which each of them is made with."""
    return f"berth.{token(cell)}."


class Subjects(msgspec.Struct, frozen=True):
    """Subjects and streams of one cell."""

    cell: str

    @property
    def root(self) -> str:
        """Prefix of every subject, with its final dot."""
        return _root(self.cell)

    def stream(self, name: StreamName) -> str:
        """Name of a stream on the server."""
        return f"{name.value}_{token(self.cell)}"

    def intake_request(self, namespace: str, job: str) -> str:
        """A job request."""
        return f"{self.root}intake.request.{token(namespace)}.{token(job)}"

    def intake_cancel(self, namespace: str, job: str) -> str:
        """Cancellation of a job."""
        return f"{self.root}intake.cancel.{token(namespace)}.{token(job)}"

    def intake_steer(self, namespace: str, job: str) -> str:
        """Hold, release or new priority of a job."""
        return f"{self.root}intake.steer.{token(namespace)}.{token(job)}"

    def fact_node(self, domain: str) -> str:
        """Nodes of a domain."""
        return f"{self.root}fact.node.{token(domain)}"

    def fact_health(self, domain: str) -> str:
        """Health of a domain's nodes and chips."""
        return f"{self.root}fact.health.{token(domain)}"

    def fact_topology(self, kind: str) -> str:
        """Topology of a kind, such as ``switch``."""
        return f"{self.root}fact.topology.{token(kind)}"

    def fact_pod(self, namespace: str, gang: str) -> str:
        """Pods of a gang as the cluster reports them."""
        return f"{self.root}fact.pod.{token(namespace)}.{token(gang)}"

    def fact_member(self, namespace: str, job: str) -> str:
        """Pods of the ranks of a job."""
        return f"{self.root}fact.member.{token(namespace)}.{token(job)}"

    def fact_job(self, namespace: str, job: str) -> str:
        """Verdict on a job request."""
        return f"{self.root}fact.job.{token(namespace)}.{token(job)}"

    def fact_outcome(self, namespace: str, job: str) -> str:
        """Result of the binder for an attempt."""
        return f"{self.root}fact.outcome.{token(namespace)}.{token(job)}"

    def fact_group(self, namespace: str, name: str) -> str:
        """Labels of a PodGroup that steer faults."""
        return f"{self.root}fact.group.{token(namespace)}.{token(name)}"

    def fact_replacement(self, namespace: str, job: str) -> str:
        """Ranks of a job whose new pods wait for a place."""
        return f"{self.root}fact.replacement.{token(namespace)}.{token(job)}"

    def fact_usage(self, domain: str) -> str:
        """What pods of other schedulers use on the nodes of a domain."""
        return f"{self.root}fact.usage.{token(domain)}"

    def fact_namespace(self, name: str) -> str:
        """Labels of a namespace."""
        return f"{self.root}fact.namespace.{token(name)}"

    def fact_claim(self, namespace: str, name: str) -> str:
        """A PersistentVolumeClaim."""
        return f"{self.root}fact.claim.{token(namespace)}.{token(name)}"

    def fact_volume(self, name: str) -> str:
        """A PersistentVolume."""
        return f"{self.root}fact.volume.{token(name)}"

    def fact_storage(self, name: str) -> str:
        """A StorageClass."""
        return f"{self.root}fact.storage.{token(name)}"

    def fact_unbound(self, namespace: str, claim: str) -> str:
        """Nodes and volumes with which a PersistentVolumeClaim could not be bound."""
        return f"{self.root}fact.unbound.{token(namespace)}.{token(claim)}"

    def fact_drain(self, kind: str, name: str) -> str:
        """A drain of a node, leaf switch or SuperPoD."""
        return f"{self.root}fact.drain.{token(kind)}.{token(name)}"

    def fact_queue(self, name: str) -> str:
        """A queue."""
        return f"{self.root}fact.queue.{token(name)}"

    def fact_approval(self, kind: str, domain: str) -> str:
        """A person's consent to restarts for faults of a kind in a domain."""
        return f"{self.root}fact.approval.{token(kind)}.{token(domain)}"

    @property
    def fact_timer(self) -> str:
        """A tick of the dispatcher's clock."""
        return f"{self.root}fact.timer"

    @property
    def fact_ledger(self) -> str:
        """What bound pods say of the ledger."""
        return f"{self.root}fact.ledger"

    def facts(self, kind: str) -> str:
        """Filter for all facts of a kind, such as node or pod."""
        return f"{self.root}fact.{kind}.>"

    @property
    def ledger(self) -> str:
        """The ledger."""
        return f"{self.root}ledger"

    def snapshot_chunk(self, ledger_seq: int, chunk: int) -> str:
        """Part of a snapshot."""
        return f"{self.root}snapshot.{ledger_seq}.{chunk}"

    def snapshot_end(self, ledger_seq: int) -> str:
        """The last message of a snapshot, without which it is ignored."""
        return f"{self.root}snapshot.{ledger_seq}.end"

    def snapshot_all(self, ledger_seq: int) -> str:
        """Filter for a whole snapshot."""
        return f"{self.root}snapshot.{ledger_seq}.>"

    def status(self, namespace: str, job: str) -> str:
        """Status of a job."""
        return f"{self.root}status.{token(namespace)}.{token(job)}"

    def summary(self, namespace: str, job_uid: str, chunk: int) -> str:
        """A chunk of a job's summary."""
        return f"{self.root}summary.{token(namespace)}.{token(job_uid)}.{chunk}"

    def lease(self, role: str) -> str:
        """Lease of a role."""
        return f"{self.root}lease.{token(role)}"

    def heartbeat(self, role: str) -> str:
        """Heartbeats of the leader of a role (core NATS, to all)."""
        return f"{self.root}heartbeat.{token(role)}"

    def heartbeat_question(self, role: str) -> str:
        """Question whether a leader of a role is alive (core NATS; only a leader answers)."""
        return f"{self.root}heartbeat.{token(role)}.question"

    def dead(self, stream: StreamName, sequence: int) -> str:
        """A message that can never be handled."""
        return f"{self.root}dead.{stream.value}.{sequence}"

    def skip(self, ledger_seq: int) -> str:
        """A skip of messages of the ledger, by the first of them."""
        return f"{self.root}skip.{ledger_seq}"

    def score(self, shard: int) -> str:
        """Score requests of a shard (core NATS, queue group per shard)."""
        return f"{self.root}score.{shard}"

    @property
    def advance(self) -> str:
        """Sequences up to which scorers may apply messages (core NATS, to all)."""
        return f"{self.root}score.advance"

    def report_health(self, node: str) -> str:
        """Health reported by a node's agent (core NATS)."""
        return f"{self.root}report.health.{token(node)}"

    @property
    def reports_health(self) -> str:
        """Filter for the health reports of all nodes (core NATS)."""
        return f"{self.root}report.health.*"

    def api(self, verb: str) -> str:
        """Requests of programs without an identity (core NATS, JSON)."""
        return f"{self.root}api.{token(verb)}"

    def api_as(self, verb: str, identity: str) -> str:
        """Requests of the program with an identity (core NATS, JSON)."""
        return f"{self.root}api.{token(verb)}.{token(identity)}"

    def api_as_any(self, verb: str) -> str:
        """Filter for the requests of all programs with an identity."""
        return f"{self.root}api.{token(verb)}.*"

    def gate(self, verb: str, identity: str) -> str:
        """Requests of the gateway for a caller, whose identity is empty without one (core NATS, JSON)."""
        return f"{self.root}gate.{token(verb)}.{token(identity)}"

    def gate_any(self, verb: str) -> str:
        """Filter for the requests of the gateway for all callers."""
        return f"{self.root}gate.{token(verb)}.*"

    def event_job(self, namespace: str, job: str) -> str:
        """Events of a job (JSON)."""
        return f"{self.root}event.job.{token(namespace)}.{token(job)}"

    @property
    def event_position(self) -> str:
        """How far the events go that are stored (JSON)."""
        return f"{self.root}event.position"

    def sim(self, verb: str) -> str:
        """Requests to a simulated cluster (core NATS)."""
        return f"{self.root}sim.{token(verb)}"

    def streams(self) -> tuple[StreamSpec, ...]:
        """All streams of the cell, origins before their mirrors."""
        root = self.root
        return (
            StreamSpec(name=StreamName.INTAKE, subjects=(f"{root}intake.>",), max_age_s=7 * _DAY_S, backup="all"),
            StreamSpec(
                name=StreamName.FACTS,
                subjects=(f"{root}fact.>",),
                max_age_s=7 * _DAY_S,
                max_bytes=4 * _GIB,
                backup="all",
            ),
            StreamSpec(
                name=StreamName.LATEST,
                mirror_of=StreamName.FACTS,
                per_subject=1,
                has_floor=True,
                is_view=True,
                backup="old",
            ),
            StreamSpec(name=StreamName.LEDGER, subjects=(self.ledger,), backup="all"),
            StreamSpec(name=StreamName.SNAPSHOT, subjects=(f"{root}snapshot.>",), backup="latest"),
            StreamSpec(
                name=StreamName.STATUS,
                subjects=(f"{root}status.>",),
                per_subject=1,
                has_floor=True,
                is_view=True,
                backup="latest",
            ),
            StreamSpec(
                name=StreamName.SUMMARY,
                subjects=(f"{root}summary.>",),
                per_subject=1,
                max_age_s=30 * _DAY_S,
                is_view=True,
                backup="none",
            ),
            StreamSpec(
                name=StreamName.LEASE, subjects=(f"{root}lease.>",), per_subject=1, allow_ttl=True, backup="none"
            ),
            StreamSpec(
                name=StreamName.DEAD,
                subjects=(f"{root}dead.>",),
                per_subject=1,
                max_age_s=30 * _DAY_S,
                max_bytes=64 * _MIB,
                backup="latest",
            ),
            StreamSpec(name=StreamName.SKIPS, subjects=(f"{root}skip.>",), per_subject=1, backup="latest"),
            StreamSpec(
                name=StreamName.EVENTS,
                subjects=(f"{root}event.>",),
                max_age_s=7 * _DAY_S,
                has_set_age=True,
                is_view=True,
                backup="none",
            ),
        )


def name_parts(subject: str, count: int) -> list[str]:
    """The last ``count`` names of a subject, unescaped.

    Raises:
        ValueError: The subject has fewer tokens, or one is not a token.
    """
    tokens = subject.split(".")
    if len(tokens) < count:
        raise ValueError(f"subject {subject!r} has fewer than {count} tokens")
    return [untoken(part) for part in tokens[-count:]]
