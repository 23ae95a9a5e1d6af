"""A cell for tests of rules: jobs come and end, and each round is decided alone and on offers of shards."""

from collections.abc import Sequence

import msgspec

from berth.core.cluster.node_packing import pack_nodes
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.turn import MissingShards
from berth.schemas import recording
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Epoch, Round, Settings, Verdict
from berth.schemas.rules import StatedRule
from tests.fuzz.seat import Seat
from tests.fuzz.shard_check import Shards, see_same
from tests.support.cells import a_job, a_node


class Team:
    """A cell with nodes of 8 chips that is decided alone and on offers of shards.

    Args:
        nodes: How many nodes.
        settings: Its settings.
        shards: Numbers of shards on whose offers each round must be the same.
        rules: Rules of its epoch; None for those of the settings.
    """

    def __init__(
        self,
        nodes: int,
        settings: Settings,
        shards: tuple[int, ...] = (),
        rules: Sequence[StatedRule] | None = None,
    ) -> None:
        self.seat = Seat()
        self.shards = [Shards(count) for count in shards]
        self.jobs = 0
        for number in range(nodes):
            self.fact(f"node.leaf-{number}", pack_nodes(f"leaf-{number}", [a_node(f"n{number}", leaf=f"{number}")]))
        self.begin(settings, rules)

    def begin(self, settings: Settings, rules: Sequence[StatedRule] | None = None) -> None:
        """Begin an epoch."""
        fold = self.seat.state.fold
        epoch, stated = fold.epoch + 1, list(rules_of(settings) if rules is None else rules)
        self.stored(Epoch(epoch, fold.base_seq, self.seat.state.facts_seq, 1, "d", settings, rules=stated))
        assert fold.epoch == epoch

    def fact(self, subject: str, fact: msgspec.Struct) -> None:
        entry = recording.Entry(self.seat.state.facts_seq + 1, encode(fact), f"berth.c.fact.{subject}")  # type: ignore[arg-type]  # a message
        assert self.seat.fact(entry.subject, entry.sequence, entry.data) == ""
        for shards in self.shards:
            shards.hear(entry)

    def stored(self, record: Epoch | Round) -> None:
        data = self.seat.encoded(record)
        head = self.seat.state.fold.head + 1
        self.seat.stored(head, data)
        for shards in self.shards:
            shards.hear(recording.Entry(head, data))

    def job(self, name: str, namespace: str = "team", **fields: object) -> None:
        request: JobRequest = msgspec.structs.replace(a_job(name, **fields), namespace=namespace)  # type: ignore[arg-type]
        self.jobs += 1
        number = self.jobs
        seen = JobSeen(namespace, name, request.uid, "accepted", number, number, 1, request, after_seq=number - 1)
        self.fact(f"job.{namespace}.{name}", seen)

    def ended(self, name: str) -> None:
        (holding,) = (one for one in self.seat.state.fold.holdings.values() if one.name == name)
        names = holding.placement.names()
        nodes = sorted(set(names))
        rows = pack([nodes.index(node) for node in names], 4)
        phases, nothing = pack([PodPhase.SUCCEEDED] * len(names), 1), pack([0] * len(names), 8)
        seen = PodsSeen(
            holding.namespace,
            name,
            holding.uid,
            1,
            pack(range(len(names)), 4),
            pack_names(nodes),
            rows,
            phases,
            nothing,
        )
        self.fact(f"pod.{holding.namespace}.{name}", seen)

    def round(self, at_ms: int = 5) -> list[tuple[str, str]]:
        """Jobs of the next round, each with the rule or the code that refuses it; empty for a placed one."""
        opening = self.seat.scheduler.open(at_ms).opening
        turn = self.seat.on(opening, MissingShards()) if opening is not None else None
        if opening is None or turn is None:
            return []
        for shards in self.shards:
            see_same(turn.round, shards.record(self.seat, opening, MissingShards()), shards.count)
        self.stored(turn.round)
        return [(one.name, _why(one)) for one in turn.round.verdicts]


def _why(verdict: Verdict) -> str:
    refusal = verdict.refusal
    return "" if refusal is None else refusal.rule or refusal.code
