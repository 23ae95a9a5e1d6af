"""Status of a cell as data, and what is wrong in it."""

from typing import Final

import msgspec

LEDGER: Final = "LEDGER"
INTAKE: Final = "INTAKE"
FACTS: Final = "FACTS"
LAGGING: Final = (LEDGER, FACTS, INTAKE)
"""Streams of which the status says how far processes are behind."""


class Leader(msgspec.Struct, frozen=True):
    """Who leads the dispatchers.

    Attributes:
        holder: Name in the lease; empty if nobody holds it.
        renewed_ms: When the lease was renewed; 0 without one.
        process: Process that says that it leads; empty if none does.
        waiting: Jobs that wait, as that process says.
    """

    holder: str = ""
    renewed_ms: int = 0
    process: str = ""
    waiting: int = 0


class Process(msgspec.Struct, frozen=True):
    """A process that answers.

    Attributes:
        service: Its service, such as ``scorer``.
        id: Unique to it.
        release: Its release.
        started: When it was started.
        not_ready: Why it is not ready; empty if it is.
        is_leader: Whether it is the dispatcher that decides.
        shard: Number of the shard that it scores; None if it is no scorer.
        behind: Messages of a stream that it has not applied, or not received if it does not say what it applied, by
            stream; without streams that it does not follow.
    """

    service: str
    id: str
    release: str
    started: str
    not_ready: str
    is_leader: bool
    shard: int | None
    behind: dict[str, int]


class Scorers(msgspec.Struct, frozen=True):
    """Shards of the cell.

    Attributes:
        expected: Number of shards that the leader asks; None if that is not known. 0: it scores in its own process.
        answering: Numbers of the shards that answer.
        missing: Numbers of those that do not.
    """

    expected: int | None
    answering: list[int]
    missing: list[int]


class Decision(msgspec.Struct, frozen=True):
    """The newest record of the ledger.

    Attributes:
        sequence: Its sequence.
        at_ms: When it was decided; 0 if it cannot be read.
        epoch: Epoch of the dispatcher.
        round: Number of the round; 0 for the begin of an epoch.
        placed: Gangs that it placed.
        refused: Gangs that it refused.
        released: Attempts whose chips it released.
        problem: Why it cannot be read; empty if it can.
    """

    sequence: int
    at_ms: int = 0
    epoch: int = 0
    round: int = 0
    placed: int = 0
    refused: int = 0
    released: int = 0
    problem: str = ""


class DeadLetters(msgspec.Struct, frozen=True):
    """Dead letters that are neither replayed nor purged.

    Attributes:
        open: Their number.
        oldest_ms: When the oldest of them was written; 0 without one.
        reasons: Their number by the kind of their reason.
    """

    open: int
    oldest_ms: int
    reasons: dict[str, int]


class Stream(msgspec.Struct, frozen=True):
    """A stream on the server.

    Attributes:
        name: Its name in the cell.
        messages: Number of messages.
        bytes: Their size.
        first_seq: Sequence of the oldest.
        last_seq: Sequence of the newest.
        leader: Server that leads it; empty without a cluster.
        late: Servers whose replica is offline or behind.
    """

    name: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    leader: str
    late: list[str]


class Nats(msgspec.Struct, frozen=True):
    """The server of NATS.

    Attributes:
        server: Its name; empty if it has none of its own.
        release: Its release.
        cluster: Its cluster; empty without one.
        address: Host and port.
        round_trip_ms: Milliseconds to the server and back.
        streams: Those of the cell.
        missing: Streams that the cell should have and does not.
    """

    server: str
    release: str
    cluster: str
    address: str
    round_trip_ms: float
    streams: list[Stream]
    missing: list[str]


class Reports(msgspec.Struct, frozen=True):
    """Nodes whose health reports are in doubt, by their health facts; each list is sorted.

    Attributes:
        stale: Nodes whose newest report is too old.
        missing: Nodes without a report that can be read.
        refused: Nodes of which some source's newest report is refused.
    """

    stale: list[str] = []
    missing: list[str] = []
    refused: list[str] = []


class CellStatus(msgspec.Struct, frozen=True):
    """Status of a cell."""

    cell: str
    at_ms: int
    leader: Leader
    processes: list[Process]
    scorers: Scorers
    decision: Decision | None
    dead_letters: DeadLetters
    nats: Nats
    reports: Reports = Reports()

    @property
    def lacks_answers(self) -> bool:
        """Whether a process that must be there has not answered."""
        return not self.leader.process or bool(self.scorers.missing)

    @property
    def problems(self) -> list[str]:
        """What keeps the cell from its work, one sentence each. Dead letters and lag do not."""
        found = []
        if not self.processes:
            found.append("no process of the cell answers on $SRV.STATS: none runs, or the user may not ask there")
        elif not self.leader.process:
            holder = f"; {self.leader.holder} holds the lease" if self.leader.holder else ""
            found.append(f"no dispatcher that answers leads, so nothing is decided{holder}")
        if self.scorers.missing:
            found.append(f"scorers do not answer: shards {', '.join(map(str, self.scorers.missing))}")
        found += [f"{one.service} {one.id} is not ready: {one.not_ready}" for one in self.processes if one.not_ready]
        if self.decision is not None and self.decision.problem:
            found.append(f"record {self.decision.sequence} of the ledger cannot be read: {self.decision.problem}")
        found += [f"stream {name} does not exist" for name in self.nats.missing]
        found += [
            f"stream {one.name}: the replica of {name} is offline or behind"
            for one in self.nats.streams
            for name in one.late
        ]
        return found


class StatusResult(msgspec.Struct, frozen=True):
    """Status of a cell as JSON, with its problems."""

    ok: bool
    problems: list[str]
    status: CellStatus
