"""What the statistics of processes say of a cell, and what counts as a problem."""

from typing import Any

import msgspec

from berth.runtime.bus.process_stats import Endpoint, Followed, ProcessReport, ProcessStats, stats_of
from berth.runtime.cell_status.model import (
    CellStatus,
    DeadLetters,
    Decision,
    Leader,
    Nats,
    Process,
    Scorers,
    Stream,
)
from berth.runtime.cell_status.processes import leader_of, process_of, scorers_of
from berth.schemas.status import LeaseHeld

LAST = {"LEDGER": 100, "FACTS": 50, "INTAKE": 20, "DEAD": 9}
SCORE = "berth.c.score."


def stats(name: str, number: int = 1, **changes: Any) -> ProcessStats:  # noqa: ANN401  # fields of the report
    report = ProcessReport(**changes)
    return ProcessStats(f"berth-{name}", f"{name}-{number}", "0.5.0", {"cell": "c"}, data=report)


def followed(stream: str, sequence: int, *, waiting: int = 0, is_filtered: bool = False) -> Followed:
    return Followed(stream, sequence, waiting, is_filtered)


def process(one: ProcessStats) -> Process:
    return process_of(one, LAST, score=SCORE)


def test_a_process_is_behind_by_what_it_has_not_received() -> None:
    one = stats(
        "binder",
        followed=[
            followed("LEDGER", 97),
            followed("FACTS", 3, waiting=5, is_filtered=True),
            followed("FACTS", 9, waiting=7, is_filtered=True),
            followed("DEAD", 1),
        ],
    )
    assert process(one).behind == {"LEDGER": 3, "FACTS": 7}
    ahead = stats("binder", followed=[followed("LEDGER", 103)])
    assert process(ahead).behind == {"LEDGER": 0}


def test_a_process_is_behind_by_what_it_has_not_applied_where_it_says_so() -> None:
    read = [followed("LEDGER", 100), followed("FACTS", 50), followed("INTAKE", 12)]
    gauges = {"berth_dispatcher_ledger_sequence": 90.0, "berth_dispatcher_facts_sequence": 45.0}
    leads = {"berth_dispatcher_is_leader": 1.0}
    leader = process(stats("dispatcher", followed=read, gauges={**gauges, **leads}))
    assert (leader.is_leader, leader.behind) == (True, {"LEDGER": 10, "FACTS": 5, "INTAKE": 8})
    standby = process(stats("dispatcher", followed=read, gauges={**gauges, "berth_dispatcher_is_leader": 0.0}))
    assert (standby.is_leader, standby.behind) == (False, {"LEDGER": 0, "FACTS": 0, "INTAKE": 8})
    scorer = stats("scorer", followed=read[:1], gauges={"berth_scorer_ledger_sequence": 98.0})
    assert process(scorer).behind == {"LEDGER": 2}


def test_a_process_of_an_earlier_release_says_nothing_of_itself() -> None:
    answer = msgspec.json.encode({"name": "berth-scorer", "id": "x", "metadata": {"cell": "c"}, "endpoints": []})
    old = stats_of(answer)
    assert old is not None
    assert old.data is None
    assert (process(old).behind, process(old).not_ready, process(old).shard) == ({}, "", None)
    for broken in (b"", b"\xff", b"{}", b"[]", b'{"name": 1}', b"[" * 5_000):
        assert stats_of(broken) is None


def test_scorers_are_those_that_answer_and_those_that_the_leader_asks() -> None:
    leads = {"berth_dispatcher_is_leader": 1.0, "berth_dispatcher_shards": 3.0, "berth_dispatcher_waiting_gangs": 4.0}
    shards = [
        msgspec.structs.replace(stats("scorer", number), endpoints=[Endpoint(f"{SCORE}{number}"), Endpoint("other")])
        for number in (2, 0)
    ]
    found = [stats("dispatcher", gauges=leads), *shards]
    processes = [process(one) for one in found]
    assert [one.shard for one in processes] == [None, 2, 0]
    assert scorers_of(processes, found) == Scorers(3, [0, 2], [1])
    assert scorers_of(processes[1:], found[1:]) == Scorers(None, [0, 2], [])
    lease = LeaseHeld("holder", 0, 7)
    assert leader_of(lease, found) == Leader("holder", 7, "dispatcher-1", 4)
    assert leader_of(lease, shards) == Leader("holder", 7)
    assert leader_of(None, []) == leader_of(LeaseHeld("", 0, 7), []) == Leader()


def test_numbers_of_whoever_answers_as_a_dispatcher_or_a_scorer_are_bounded() -> None:
    for number in ("1e308", "-1e308", "9" * 400, '"1"'):
        text = f'{{"name": "berth-dispatcher", "id": "x", "data": {{"gauges": {{"a": {number}}}}}}}'
        assert stats_of(text.encode()) is None
    for shards in (1e18, 257, -1):
        leads = stats("dispatcher", gauges={"berth_dispatcher_is_leader": 1.0, "berth_dispatcher_shards": shards})
        assert scorers_of([process(leads)], [leads]) == Scorers(None, [], [])
    for name in ("9" * 5_000, "256", "-1", "x"):
        scorer = msgspec.structs.replace(stats("scorer"), endpoints=[Endpoint(f"{SCORE}{name}"), Endpoint(f"{SCORE}7")])
        assert process(scorer).shard == 7


def cell(**changes: object) -> CellStatus:
    """A cell without problems, changed."""
    leader = Process("dispatcher", "d", "0.5.0", "", "", is_leader=True, shard=None, behind={})
    well = CellStatus(
        cell="c",
        at_ms=1,
        leader=Leader("holder", 1, "d"),
        processes=[leader],
        scorers=Scorers(1, [0], []),
        decision=Decision(1, 1, 1, 1),
        dead_letters=DeadLetters(3, 1, {"invalid": 3}),
        nats=Nats("n", "2.12.0", "", "h:1", 0.1, [Stream("LEDGER", 1, 1, 1, 1, "", [])], []),
    )
    return msgspec.structs.replace(well, **changes)


def test_what_keeps_a_cell_from_its_work_is_a_problem() -> None:
    well = cell()
    assert well.problems == []
    (nobody,) = cell(processes=[], leader=Leader(), scorers=Scorers(None, [], [])).problems
    assert "none runs, or the user may not ask there" in nobody
    (unled,) = cell(leader=Leader("holder", 1)).problems
    assert unled == "no dispatcher that answers leads, so nothing is decided; holder holds the lease"
    assert cell(leader=Leader()).problems == ["no dispatcher that answers leads, so nothing is decided"]
    assert cell(scorers=Scorers(3, [1], [0, 2])).problems == ["scorers do not answer: shards 0, 2"]
    late = msgspec.structs.replace(well.processes[0], not_ready="facts are read")
    assert cell(processes=[late]).problems == ["dispatcher d is not ready: facts are read"]
    (broken,) = cell(decision=Decision(7, problem="does not decode")).problems
    assert broken == "record 7 of the ledger cannot be read: does not decode"
    streams = [Stream("FACTS", 1, 1, 1, 1, "n1", ["n2", "n3"])]
    assert cell(nats=msgspec.structs.replace(well.nats, streams=streams, missing=["DEAD"])).problems == [
        "stream DEAD does not exist",
        "stream FACTS: the replica of n2 is offline or behind",
        "stream FACTS: the replica of n3 is offline or behind",
    ]
