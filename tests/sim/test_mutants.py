"""The search for seeds that kill mutants, on a tree whose simulation is three lines, and the ledger's oracle."""

from pathlib import Path

import msgspec
import pytest

from berth.schemas.chain import FIRST, chained
from berth.schemas.envelope import encode, sealed
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.message import Message
from tests.mutants.patches import PatchError, mutant_of
from tests.sim.killings import Killing, known_from, page_of, seeds_for
from tests.sim.ledger_oracle import LedgerOracle
from tests.sim.mutants import main
from tests.sim.story import draw
from tests.unit.tools.test_mutants import KILLER, MODULE, SWAPPED, Tiny, a_patch, diff

RUN = """from dataclasses import dataclass

from area.sums import smaller


@dataclass
class Lived:
    steps: int
    kind: str
    trace: str = ""


def live(seed):
    if seed == 8:
        return Lived(1, "it always fails")
    if seed == 9:
        raise KeyError(smaller(1, 2))
    return Lived(10 * seed, "one | two" if seed > 3 and smaller(1, 2) == 2 else "")
"""
NAMED = f"Killed-by: {KILLER}\nSimulated: seed\n"


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    made = Tiny(tmp_path)
    (made.root / "tests/sim").mkdir()
    for name, text in (("__init__.py", ""), ("sim/__init__.py", ""), ("sim/run.py", RUN)):
        (made.root / "tests" / name).write_text(text)
    return made


def search(tiny: Tiny, *words: str, seeds: str = "0-7") -> tuple[int, str]:
    """Exit code and page of the command."""
    page = tiny.root / "page.md"
    code = main([*words, "--seeds", seeds], root=tiny.root, folder=tiny.folder, page=page)
    return code, page.read_text() if page.exists() else ""


def rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| `")]


def test_the_first_seed_that_fails_is_told_with_what_is_wrong(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.add("swapped", a_patch(head=NAMED))
    tiny.add("unasked", a_patch())
    code, page = search(tiny)
    assert code == 0
    assert rows(page) == ["| `swapped` | the larger one is taken | seed 4 | 40 | one \\| two |"]
    assert known_from(page) == {"swapped": Killing(4, 40, "one | two")}
    said = capsys.readouterr().out
    assert said == "killed   swapped by seed 4 after 40 steps: one | two\nkilled 1, survived 0\n"
    assert (tiny.root / "area/sums.py").read_text() == MODULE


def test_the_known_seed_is_tried_first(tiny: Tiny) -> None:
    tiny.add("swapped", a_patch(head=NAMED))
    (tiny.root / "page.md").write_text("| `swapped` | the larger one is taken | seed 6 | 1 | whatever |\n")
    assert rows(search(tiny)[1]) == ["| `swapped` | the larger one is taken | seed 6 | 60 | one \\| two |"]


def test_a_mutant_that_no_seed_can_notice_is_killed_by_its_tests(tiny: Tiny) -> None:
    tiny.add("swapped", a_patch(head=f"Killed-by: {KILLER}\nSimulated: test, nobody compares | there\n"))
    code, page = search(tiny)
    assert code == 0
    assert rows(page) == [f"| `swapped` | the larger one is taken | `{KILLER}` | | nobody compares \\| there |"]


def test_a_reason_that_is_not_so_is_found_when_asked(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.add("swapped", a_patch(head=f"Killed-by: {KILLER}\nSimulated: test, nobody compares\n"))
    assert search(tiny, "--disprove", "4")[0] == 0
    capsys.readouterr()
    code, page = search(tiny, "--disprove", "5")
    assert (code, rows(page)) == (1, [])
    said = capsys.readouterr().out
    assert said == "survived swapped: the reason is not so: seed 4 kills it: one | two\nkilled 0, survived 1\n"
    assert (tiny.root / "area/sums.py").read_text() == MODULE
    assert search(tiny, "--disprove", "1", seeds="8-8")[0] == 1
    assert "seed 8 fails without any mutant" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("patch", "seeds", "words"),
    [
        (a_patch(head=NAMED), "0-3", "lives through 4 seeds"),
        (a_patch(head=NAMED), "8-8", "seed 8 fails without any mutant: it always fails"),
        (a_patch(SWAPPED.replace("def smaller", "def larger"), head=NAMED), "0-7", "does not apply: error: patch failed"),
        (a_patch(diff("LIMIT = 3", "", line=1).replace("+\n", "+LIMIT =\n"), head=NAMED), "0-7", "does not run"),
        (
            a_patch(head="Killed-by: tests/test_sums.py::test_nothing\nSimulated: test, so\n"),
            "0-7",
            "survived: tests/test_sums.py::test_nothing passes",
        ),
    ],
)  # fmt: skip
def test_a_mutant_that_nothing_kills_fails_and_has_no_row(
    tiny: Tiny, capsys: pytest.CaptureFixture[str], patch: str, seeds: str, words: str
) -> None:
    tiny.add("swapped", patch)
    code, page = search(tiny, seeds=seeds)
    assert code == 1
    assert rows(page) == []
    assert words in capsys.readouterr().out


def test_an_error_of_the_simulation_itself_counts_unless_it_is_there_without_the_mutant(tiny: Tiny) -> None:
    tiny.add("swapped", a_patch(head=NAMED))
    assert search(tiny, seeds="9-9")[0] == 1
    run = tiny.root / "tests/sim/run.py"
    run.write_text(RUN.replace("seed == 9", "seed == 9 and smaller(1, 2) == 2"))
    code, page = search(tiny, seeds="9-9")
    assert code == 0
    assert rows(page)[0].endswith("| seed 9 | 0 | the simulation raises KeyError: 2 |")


def test_mutants_that_do_not_say_so_are_tried_by_name(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.add("swapped", a_patch())
    code, page = search(tiny, "swap")
    assert (code, rows(page)) == (0, [])
    assert "killed   swapped by seed 4" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        search(tiny)
    assert "no mutant says Simulated:" in capsys.readouterr().err


def test_seeds_with_the_named_events_come_first() -> None:
    mutant = mutant_of("m", a_patch(head=f"Killed-by: {KILLER}\nSimulated: seed with doubt, kill\n"))
    order = seeds_for(mutant, range(990, 1030))
    assert sorted(order) == list(range(990, 1030))

    def least(seed: int) -> int:
        return min(sum(event.verb == verb for event in draw(seed).events) for verb in ("doubt", "kill"))

    assert [least(seed) for seed in order] == sorted((least(seed) for seed in range(990, 1030)), reverse=True)
    with pytest.raises(PatchError, match="m: Simulated: there is no event nothing"):
        seeds_for(msgspec.structs.replace(mutant, verbs=("nothing",)), range(3))


@pytest.mark.parametrize("line", ["yes", "seed with", "seed\nSimulated: seed", "test,", "test"])
def test_a_line_that_cannot_be_meant(line: str) -> None:
    with pytest.raises(PatchError, match=r"m: Simulated .*: expected seed, seed with VERB, VERB or test, REASON"):
        mutant_of("m", a_patch(head=f"Killed-by: {KILLER}\nSimulated: {line}\n"))


def test_an_equivalent_mutant_is_not_simulated() -> None:
    with pytest.raises(PatchError, match="expected a mutant that a test kills"):
        mutant_of("m", a_patch(head="Equivalent: so\nSimulated: seed\n"))


def test_a_page_has_no_row_for_a_mutant_without_a_killer() -> None:
    mutants = [mutant_of(name, a_patch(head=NAMED)) for name in ("one", "two")]
    page = page_of(mutants, {"two": Killing(1, 2, "wrong")})
    assert rows(page) == ["| `two` | the larger one is taken | seed 1 | 2 | wrong |"]


@pytest.mark.timeout(240)
def test_a_seed_of_the_real_simulation_kills_a_real_mutant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    assert main(["ledger-base-unchecked", "--most", "12"], page=page) == 0
    assert "a message of the ledger counts and must not" in capsys.readouterr().out
    assert list(known_from(page.read_text())) == ["ledger-base-unchecked"]


# The oracle.


def epoch(number: int, base: int, *, chain: int) -> Epoch:
    return Epoch(number, base, 0, 0, "holder", Settings(chain=chain))


def sealed_at(message: Message, sequence: int, before: bytes) -> tuple[bytes, bytes]:
    """Bytes of a record with the right digest, and the digest."""
    envelope = sealed(message)
    digest = chained(before, sequence, envelope)
    return msgspec.structs.replace(envelope, chain=digest).encode(), digest


def test_the_oracle_knows_epochs_and_bases_without_a_chain() -> None:
    oracle = LedgerOracle()
    assert oracle.read(1, encode(epoch(1, 0, chain=0)))
    assert oracle.read(2, encode(Round(1, 1, 0, 0, 1)))
    assert not oracle.read(3, encode(Round(1, 1, 0, 0, 2))), "another base"
    assert not oracle.read(4, encode(Round(2, 3, 0, 0, 2))), "another epoch"
    assert not oracle.read(5, encode(epoch(1, 4, chain=0))), "an epoch that began already"
    assert not oracle.read(6, encode(TimerSeen(1))), "no record"
    assert not oracle.read(7, b"nothing")
    assert oracle.read(8, encode(epoch(2, 7, chain=0)))
    assert oracle.position[:2] == (8, 2)
    assert oracle.read(8, encode(Round(1, 7, 0, 0, 2))), "the stream was cut, and this is stored instead"
    with pytest.raises(ValueError, match="message 12 follows on 8"):
        oracle.read(12, b"")


def test_the_oracle_knows_the_chain() -> None:
    oracle = LedgerOracle()
    first, digest = sealed_at(epoch(1, 0, chain=1), 1, FIRST)
    assert oracle.read(1, first)
    assert not oracle.read(2, encode(Round(1, 1, 0, 0, 1))), "no digest"
    assert not oracle.read(3, sealed_at(Round(1, 2, 0, 0, 1), 3, FIRST)[0]), "another digest"
    assert not oracle.read(4, sealed_at(Round(0, 3, 0, 0, 1), 4, digest)[0]), "another epoch"
    assert oracle.read(5, sealed_at(Round(1, 4, 0, 0, 1), 5, digest)[0])
