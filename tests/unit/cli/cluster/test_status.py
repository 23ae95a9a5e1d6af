"""``berth status``: the lines above the tables."""

import msgspec
import pytest

from berth.cli.cluster.status import head_lines, size_text
from berth.runtime.cell_status.model import CellStatus, DeadLetters, Decision, Leader, Nats, Reports, Scorers

NOW_MS = 1_760_000_000_000
WELL = CellStatus(
    cell="c",
    at_ms=NOW_MS,
    leader=Leader("holder", NOW_MS - 2_000, "host-1", 4),
    processes=[],
    scorers=Scorers(2, [0, 1], []),
    decision=Decision(812, NOW_MS - 12_000, 3, 401, placed=3, refused=1, released=2),
    dead_letters=DeadLetters(3, NOW_MS - 7_200_000, {"undecodable": 2, "invalid": 1}),
    nats=Nats("n1", "2.12.0", "three", "127.0.0.1:4222", 0.44, [], []),
)


def head(**changes: object) -> dict[str, str]:
    lines = head_lines(msgspec.structs.replace(WELL, **changes))
    return {line[:15].strip(): line[15:] for line in lines}


def test_each_question_has_a_line() -> None:
    assert head() == {
        "cell": "c",
        "leader": "host-1, 4 jobs waiting, lease renewed 2 s ago",
        "scorers": "2 of 2 shards answer",
        "last decision": "12 s ago, record 812, round 401: 3 placed, 1 refused, 2 released",
        "dead letters": "3, the oldest 2 h old: 2 undecodable, 1 invalid; see: berth dead list",
        "NATS": "n1 2.12.0 at 127.0.0.1:4222, cluster three, round trip 0.4 ms",
    }


def test_reports_in_doubt_have_a_line() -> None:
    assert "reports" not in head()
    assert head(reports=Reports(["a", "b", "c", "d"], ["e"], ["a"]))["reports"] == (
        "4 too old: a, b, c and 1 more; 1 missing: e; 1 refused: a; see: berth nodes"
    )


def test_thousands_have_separators() -> None:
    found = head(
        leader=Leader("holder", NOW_MS, "host-1", 4_000),
        decision=Decision(8123, NOW_MS, 3, 4010, placed=1_200, refused=25_000, released=1_001),
        dead_letters=DeadLetters(3_000, NOW_MS, {"undecodable": 2_999, "invalid": 1}),
        reports=Reports([f"n{number}" for number in range(1_500)], [], []),
    )
    assert "4,000 jobs waiting" in found["leader"]
    assert "record 8123, round 4010: 1,200 placed, 25,000 refused, 1,001 released" in found["last decision"]
    assert found["dead letters"].startswith("3,000, the oldest 0 s old: 2,999 undecodable, 1 invalid")
    assert found["reports"].startswith("1,500 too old: ")


def test_what_is_not_there_is_said() -> None:
    found = head(
        leader=Leader(),
        scorers=Scorers(None, [], []),
        decision=None,
        dead_letters=DeadLetters(0, 0, {}),
        nats=msgspec.structs.replace(WELL.nats, server="", cluster=""),
    )
    assert found["leader"] == "none that answers"
    assert found["scorers"] == "none answers; how many there should be is not known without a leader"
    assert (found["last decision"], found["dead letters"]) == ("none", "none")
    assert found["NATS"].startswith("2.12.0 at 127.0.0.1:4222, round trip")
    assert head(scorers=Scorers(0, [], []))["scorers"] == "none: the dispatcher scores in its own process"
    assert head(scorers=Scorers(None, [0, 1, 2], []))["scorers"].startswith("shards 0-2 answer; how many")
    assert head(decision=Decision(7, problem="x"))["last decision"] == "record 7 cannot be read"
    assert head(decision=Decision(1, NOW_MS, 5))["last decision"] == "0 s ago, record 1, epoch 5 began"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 52, "4096.0 TiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
