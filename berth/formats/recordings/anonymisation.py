"""Anonymous recordings: names are replaced, and all decisions stay the same.

Names decide ties, so replacements have the order of the names. The shard of a domain follows from its name, so the
replacement has the same shard. All names must be known before the first is replaced: the first pass collects them, the
second replaces them. Keys of labels and annotations, values that Berth reads, numbers, products, resources and times
stay. A message that cannot be decoded is replaced by another one that cannot be decoded.

Longer than 400 lines because both passes walk over all kinds of messages, and the forms of sentences with names stand
beside what replaces the names.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from berth.formats.recordings.anonymisation_rules import (
    JOB_KEY,
    KEPT_KEYS,
    SERVICE_KEY,
    SUBJECTS,
    Kind,
    Rule,
    Special,
    group_kind,
    has_plain_label,
    plan_of,
)
from berth.formats.recordings.new_names import new_names, stays
from berth.schemas.chain import chained, link_of, position_of, state_digest
from berth.schemas.columns import pack_names, unpack_names
from berth.schemas.constraints import NAME_KEYS, Expression
from berth.schemas.envelope import DecodeError, VersionError, body_of, encode, open_envelope
from berth.schemas.facts import (
    HealthSeen,
    JobSeen,
    LedgerSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodsSeen,
    TimerSeen,
    TopologySeen,
)
from berth.schemas.fault_facts import ApprovalSeen, DrainSeen, GroupSeen, ReplacementsSeen
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.message import Message
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import KEY_SIGN
from berth.schemas.recording import Entry, RecordingHead
from berth.schemas.refusal import Refusal
from berth.schemas.status import KeptFact, SnapshotBody
from berth.schemas.subjects import token, untoken
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen, VolumeSeen

CELL: Final = "cell"
MESSAGES: Final[Mapping[str, type[Message]]] = {
    kind.KIND: kind
    for kind in (
        NodesSeen, HealthSeen, TopologySeen, PodsSeen, MembersSeen, JobSeen, OutcomeSeen, TimerSeen, UsageSeen, NamespaceSeen,
        ClaimSeen, VolumeSeen, StorageSeen, UnboundSeen, GroupSeen, ReplacementsSeen, DrainSeen, ApprovalSeen,
        QueueSeen, LedgerSeen, Epoch, Round,
    )
}  # fmt: skip
_SUBJECT_TOKENS: Final = 4
_STRANGE: Final = "strange"
"""Last token of the subject of a fact with an unknown subject."""
_DEAD: Final = b""
"""Bytes that cannot be decoded."""
_WORD: Final = re.compile(r"[a-z]+(-[a-z]+)*")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_HAS_NAME: Final = re.compile(r"(?P<before>.*\(uid )(?P<uid>.*)(?P<after>\))", re.DOTALL)
_HAS_UID: Final = re.compile(r"(?P<before>.*: the job )(?P<path>.*)(?P<after> has this one)", re.DOTALL)
_HAS_NODE: Final = re.compile(
    r"(?P<before>pod of rank [0-9]+ on )(?P<node>[^ ]*)(?P<fault>: .*?)(; (?P<by>.*) approved it)?",
    re.DOTALL | re.ASCII,
)
_NAMES_NOBODY: Final = re.compile(
    r"the (new|backup) pods? of ranks? [0-9].* places?( for a hot switch| for [0-9.]+ s)?"
    r"|(preempted|reclaimed) for a job of [^\n]*"
)
_SOMEBODY: Final = "a person"
_KEPT_BEGINNINGS: Final = tuple(sorted(KEPT_KEYS))
"""A refusal of an annotation may name a place inside its value."""
_COMPARED: Final = frozenset({"Gt", "Lt"})

See = Callable[[Kind, str], str]
SeeLabel = Callable[[str, str], str]


class _Walk:
    """A pass over messages that calls a function for every name and replaces the name by its result.

    Args:
        see: Called with kind and name.
        see_label: Called with key and value of a label or annotation.
        meet: Called with each struct before its texts.
    """

    def __init__(self, see: See, see_label: SeeLabel, meet: Callable[[msgspec.Struct], None] | None = None) -> None:
        self._see = see
        self._see_label = see_label
        self._meet = meet
        self._plans: dict[type, list[tuple[str, Rule | None]]] = {}
        self._special: dict[Special, Callable[[Any, Any], Any]] = {
            Special.TABLE: lambda _, table: pack_names([see(Kind.NODE, name) for name in unpack_names(table)]),
            Special.PATH: lambda _, path: self._path(path),
            Special.LABELS: lambda _, labels: {key: see_label(key, value) for key, value in labels.items()},
            Special.BY_KEY: self._by_key,
            Special.GROUP_NAMES: lambda part, names: [see(group_kind(part.topology), name) for name in names],
            Special.GROUP_LABEL: lambda part, label: (
                label if has_plain_label(part.topology) else see(Kind.SERVICE, label)
            ),
            Special.UIDS: lambda _, numbers: {see(Kind.UID, uid): number for uid, number in numbers.items()},
            Special.WORD: lambda _, text: text if _WORD.fullmatch(text) else see(Kind.REASON, text),
            Special.CAUSE: lambda _, text: self._cause(text),
            Special.PODS: lambda _, pods: [
                (see(Kind.NAMESPACE, namespace), tuple((key, see_label(key, value)) for key, value in labels), ending)
                for namespace, labels, ending in pods
            ],
            Special.DRAINED: lambda drain, name: see(SUBJECTS[f"drain.{drain.kind}"][1], name),
            Special.KEYS: lambda _, keys: type(keys)([self._key(key) for key in keys]),
            Special.PAIRS: lambda _, pairs: [(see(Kind.NODE, name), number) for name, number in pairs],
        }

    def struct(self, value: Any) -> Any:  # noqa: ANN401  # a struct of any message
        """The struct with other names.

        Raises:
            ValueError: A table of names is damaged.
        """
        if self._meet is not None:
            self._meet(value)
        plan = self._plans.get(type(value))
        if plan is None:
            plan = self._plans[type(value)] = plan_of(type(value))
        changes: dict[str, Any] = {}
        for field, rule in plan:
            got = getattr(value, field)
            if not got:
                continue
            made = self._tree(got) if rule is None else self._ruled(value, field, got, rule)
            if made is not got:
                changes[field] = made
        return msgspec.structs.replace(value, **changes) if changes else value

    def _ruled(self, value: Any, field: str, got: Any, rule: Rule) -> Any:  # noqa: ANN401  # a field of any message
        if isinstance(rule, Kind):
            return self._named(rule, got)
        if rule is Special.REFUSED:
            return self._refused(value, field, got)
        return self._special[rule](value, got)

    def _named(self, kind: Kind, got: Any) -> Any:  # noqa: ANN401  # a name, or a list of names
        return self._see(kind, got) if isinstance(got, str) else [self._see(kind, name) for name in got]

    def _tree(self, got: Any) -> Any:  # noqa: ANN401  # a field of any message
        match got:
            case msgspec.Struct():
                return self.struct(got)
            case list():
                return [self._tree(one) for one in got]
            case tuple():
                return tuple([self._tree(one) for one in got])
            case _:
                return got

    def _key(self, key: str) -> str:
        """A key that wakes gangs: a namespace, or that of a queue."""
        if not key.startswith(KEY_SIGN):
            return self._see(Kind.NAMESPACE, key)
        queue, sign, dimension = key.removeprefix(KEY_SIGN).partition("/")
        return f"{KEY_SIGN}{self._see(Kind.QUEUE, queue)}{sign}{dimension}"

    def _path(self, path: str) -> str:
        namespace, sign, name = path.partition("/")
        return f"{self._see(Kind.NAMESPACE, namespace)}/{self._see(Kind.JOB, name)}" if sign else path

    def _by_key(self, value: Any, got: Any) -> Any:  # noqa: ANN401  # a taint, toleration or expression
        if isinstance(got, str):
            return self._see_label(value.key, got)
        return tuple([self._see_label(value.key, one) for one in got])

    def _refused(self, refusal: Refusal, field: str, text: str) -> str:
        """Value or expectation of a refusal: some contain the name or the uid of another job."""
        is_value = field == "value"
        match refusal.field:
            case "uid" | "claim" if is_value:
                return self._see(Kind.UID if refusal.field == "uid" else Kind.CLAIM, text)
            case "uid":
                return self._inside(_HAS_UID, "path", text, self._path)
            case "name" if is_value:
                return self._path(text)
            case "name":
                return self._inside(_HAS_NAME, "uid", text, lambda uid: self._see(Kind.UID, uid))
            case _ if is_value:
                place, _, key = refusal.field.partition(".")
                is_label = place in {"labels", "annotations"} and not key.startswith(_KEPT_BEGINNINGS)
                return self._see_label(key, text) if is_label else text
            case _:
                return text

    def _cause(self, text: str) -> str:
        """Cause of a recovery, which names a node, and perhaps who approved it."""
        found = _HAS_NODE.fullmatch(text)
        if found is None:
            return text if not text or _NAMES_NOBODY.fullmatch(text) else self._see(Kind.REASON, text)
        by = found["by"]
        if by is not None and by != _SOMEBODY:
            by = self._see(Kind.HOLDER, by)
        approved = f"; {by} approved it" if by is not None else ""
        return f"{found['before']}{self._see(Kind.NODE, found['node'])}{found['fault']}{approved}"

    @staticmethod
    def _inside(pattern: re.Pattern[str], group: str, text: str, put: Callable[[str], str]) -> str:
        found = pattern.fullmatch(text)
        return f"{found['before']}{put(found[group])}{found['after']}" if found is not None else text

    def entry(self, entry: Entry) -> Entry:
        """An entry with other names."""
        subject = self.subject(entry.subject) if entry.subject else ""
        return Entry(entry.sequence, self.message(entry.data), subject)

    def message(self, data: bytes) -> bytes:
        """A message with other names; of a kind or version that this release does not know, only its envelope."""
        try:
            envelope = open_envelope(data)
            kind = MESSAGES.get(envelope.kind)
            if kind is None or (kind.MUST_READ and envelope.version != kind.VERSION):
                release = (envelope.release,) if envelope.release else ()
                return msgspec.msgpack.encode((envelope.kind, envelope.version, [], *release))
            return encode(self.struct(body_of(envelope, kind)))
        except (DecodeError, ValueError):
            return _DEAD

    def subject(self, subject: str) -> str:
        """Subject of a fact with other names."""
        tokens = subject.split(".")
        about = tokens[_SUBJECT_TOKENS - 1 :]
        kinds = SUBJECTS.get(".".join(about[:2])) or SUBJECTS.get(about[0]) if about else None
        names = tokens[_SUBJECT_TOKENS:]
        begin = ["berth", CELL, "fact"]
        if kinds is None or len(kinds) != len(names):
            return ".".join([*begin, _STRANGE])
        try:
            made = [token(self._see(kind, untoken(name))) for kind, name in zip(kinds, names, strict=True)]
        except ValueError:
            return ".".join([*begin, _STRANGE])
        return ".".join([*begin, tokens[_SUBJECT_TOKENS - 1], *made])

    def snapshot(self, body: SnapshotBody, dump: type[msgspec.Struct]) -> SnapshotBody:
        """A snapshot with other names."""
        facts = [KeptFact(self.subject(fact.subject), fact.sequence, self.message(fact.data)) for fact in body.facts]
        ledger = body.ledger
        if ledger:
            ledger = msgspec.msgpack.encode(self.struct(msgspec.msgpack.decode(ledger, type=dump)))
        facts.sort(key=lambda fact: fact.subject)
        return SnapshotBody(
            ledger_seq=body.ledger_seq,
            facts_seq=body.facts_seq,
            facts=facts,
            ledger=ledger,
            digest=state_digest(facts, ledger) if body.digest else b"",
            fold_version=body.fold_version,
        )


class Anonymiser:
    """Collects the names of a recording, then replaces them.

    Args:
        head: Head of the recording.
        dump: Type of the folded ledger in its start.
    """

    def __init__(self, head: RecordingHead, dump: type[msgspec.Struct]) -> None:
        self._head = head
        self._dump = dump
        self._position = position_of(head.start)
        self._digest = self._position.digest
        self._names: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        self._labels: dict[str, set[str]] = {}
        self._compared: set[str] = set()
        self._level_keys: set[str] = set()
        self._trees: set[str] = set()
        """Names of the trees in the settings, which are kept; a refusal may name one instead of a SuperPoD."""
        self._shards: set[int] = set()
        self._new: dict[Kind, dict[str, str]] = {}
        self._learn = _Walk(self._note, self._note_label, self._meet)
        self._replace = _Walk(self.name, self._label)
        self._meet(head.settings)
        self._learn.snapshot(head.start, dump)

    def learn(self, entry: Entry) -> None:
        """Collect the names of an entry. Called for all entries first, in any order."""
        self._learn.entry(entry)

    def settle(self) -> None:
        """Assign the replacements, after all entries."""
        for key, values in self._labels.items():
            for value in values:
                kind = self._kind_of(key, value)
                if kind is not Kind.KEEP:
                    self._names[kind].add(value)
        for kind, names in self._names.items():
            left = [name for name in names if not self._stays(kind, name)]
            self._new[kind] = new_names(kind, left, self._shards)

    def head(self) -> RecordingHead:
        """The head with other names."""
        start = self._replace.snapshot(self._head.start, self._dump)
        return msgspec.structs.replace(self._head, cell=CELL, start=start, anonymous=True)

    def entry(self, entry: Entry) -> Entry:
        """An entry with other names. Entries come in their order: records are chained anew."""
        made = self._replace.entry(entry)
        return made if entry.subject else self._rechained(entry, made)

    def _rechained(self, record: Entry, made: Entry) -> Entry:
        """A record with the chain value of what it became; a void message stays void."""
        before = self._position
        try:
            envelope = open_envelope(made.data)
        except DecodeError:
            return made  # whoever folds it stops there
        try:
            link = link_of(before, record.sequence, record.data)
        except DecodeError:
            return made  # whoever folds it stops there
        except VersionError:
            pass  # it stops whoever folds it
        else:
            self._position = before.after(link)
            if link.void or link.digest == before.digest:
                return made
        self._digest = chained(self._digest, record.sequence, envelope)
        return msgspec.structs.replace(made, data=msgspec.structs.replace(envelope, chain=self._digest).encode())

    def name(self, kind: Kind, name: str) -> str:
        """Replacement of a collected name."""
        return name if self._stays(kind, name) else self._new[kind][name]

    def _note(self, kind: Kind, name: str) -> str:
        if not stays(kind, name):
            self._names[kind].add(name)
        return name

    def _note_label(self, key: str, value: str) -> str:
        self._labels.setdefault(key, set()).add(value)
        return value

    def _stays(self, kind: Kind, name: str) -> bool:
        return stays(kind, name) or (kind is Kind.GROUP and name in self._trees)

    def _meet(self, value: msgspec.Struct) -> None:
        match value:
            case Settings():
                self._level_keys.update(_texts(value.resource_levels))
                self._trees.update(_trees(value.resource_levels))
            case Round():
                self._shards.add(value.shards)
            case Expression() if value.operator in _COMPARED:
                self._compared.add(value.key)
            case _:
                pass

    def _label(self, key: str, value: str) -> str:
        return self.name(self._kind_of(key, value), value)

    def _kind_of(self, key: str, value: str) -> Kind:
        if key in KEPT_KEYS or (key in self._compared and _INTEGER.fullmatch(value)):
            return Kind.KEEP
        if key in NAME_KEYS:
            return Kind.NODE
        if key == SERVICE_KEY:
            return Kind.SERVICE
        if key == JOB_KEY:
            return Kind.JOB
        return Kind.GROUP if key in self._level_keys else Kind.VALUE


def _trees(text: str) -> Iterator[str]:
    """Names of the trees of levels in a JSON text; none for another text."""
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return
    if isinstance(found, dict):
        yield from found


def _texts(text: str) -> Iterator[str]:
    """Texts inside a JSON text; none for another text."""
    try:
        waiting: list[Any] = [msgspec.json.decode(text)] if text else []
    except msgspec.DecodeError:
        return
    while waiting:
        match waiting.pop():
            case str() as found:
                yield found.strip()
            case dict() as found:
                waiting += found.values()
            case list() as found:
                waiting += found
            case _:
                pass
