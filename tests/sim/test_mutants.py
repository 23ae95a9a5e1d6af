"""The search for seeds that kill mutants, on a tree whose simulation is three lines, and the ledger's oracle."""

from pathlib import Path

import msgspec
import pytest

from berth.schemas.chain import FIRST, chained
from berth.schemas.envelope import encode, sealed
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.message import Message
from tests.mutants.made.registry import Made
from tests.mutants.patterns import Change, Product
from tests.mutants.trees import TreeError
from tests.sim.killings import PAGE, Killing, known_from, page_of, seeds_for
from tests.sim.ledger_oracle import LedgerOracle
from tests.sim.mutants import main
from tests.sim.story import draw
from tests.unit.tools.test_mutants import MODULE, PATH, planted

RUN = """from dataclasses import dataclass

from schemas.sums import smaller


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


def swapped(product: Product) -> Change:
    """The larger one is taken."""
    return product.one("schemas", "any_one < any_other").to("{one} > {other}")


def broken(product: Product) -> Change:
    """The module cannot be imported."""
    return product.one("schemas", "LIMIT = 3\n").to("LIMIT = none")


NAMED = Made("swapped", "the larger one is taken", swapped, is_simulated=True)
UNSEEN = NAMED._replace(unseen="nobody compares | there")
UNASKED = NAMED._replace(is_simulated=False)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    root = planted(tmp_path / "tree")
    (root / "tests/sim").mkdir()
    for name, text in (("__init__.py", ""), ("run.py", RUN)):
        (root / "tests/sim" / name).write_text(text)
    return root


def search(tiny: Path, made: Made, *words: str, seeds: str = "0-7") -> tuple[int, str]:
    """Exit code and page of the command."""
    page = tiny / "page.md"
    code = main([*words, "--seeds", seeds], root=tiny, made=[made], page=page)
    return code, page.read_text() if page.exists() else ""


def rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| `")]


def test_the_first_seed_that_fails_is_told_with_what_is_wrong(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, page = search(tiny, NAMED)
    assert code == 0
    assert rows(page) == ["| `swapped` | the larger one is taken | seed 4 | 40 | one \\| two |"]
    assert known_from(page) == {"swapped": Killing(4, 40, "one | two")}
    said = capsys.readouterr().out
    assert said == "killed   swapped by seed 4 after 40 steps: one | two\nkilled 1, survived 0\n"
    assert (tiny / PATH).read_text() == MODULE


def test_the_known_seed_is_tried_first(tiny: Path) -> None:
    (tiny / "page.md").write_text("| `swapped` | the larger one is taken | seed 6 | 1 | whatever |\n")
    assert rows(search(tiny, NAMED)[1]) == ["| `swapped` | the larger one is taken | seed 6 | 60 | one \\| two |"]


def test_a_reason_that_is_not_so_is_found_when_asked(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, page = search(tiny, UNSEEN, "--disprove", "4")
    assert (code, rows(page)) == (0, ["| `swapped` | the larger one is taken | tests | | nobody compares \\| there |"])
    capsys.readouterr()
    code, page = search(tiny, UNSEEN, "--disprove", "5")
    assert (code, rows(page)) == (1, [])
    said = capsys.readouterr().out
    assert said == "survived swapped: the reason is not so: seed 4 kills it: one | two\nkilled 0, survived 1\n"
    assert search(tiny, UNSEEN, "--disprove", "1", seeds="8-8")[0] == 1
    assert "seed 8 fails without any mutant" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("made", "seeds", "words"),
    [
        (NAMED, "0-3", "lives through 4 seeds"),
        (NAMED, "8-8", "seed 8 fails without any mutant: it always fails"),
        (NAMED._replace(make=broken), "0-7", "does not run"),
    ],
)
def test_a_mutant_that_nothing_kills_fails_and_has_no_row(
    tiny: Path, capsys: pytest.CaptureFixture[str], made: Made, seeds: str, words: str
) -> None:
    code, page = search(tiny, made, seeds=seeds)
    assert code == 1
    assert rows(page) == []
    assert words in capsys.readouterr().out


def test_a_mutant_without_a_place_is_a_wrong_call(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tiny / PATH).write_text(MODULE.replace("one < other", "one <= other"))
    assert search(tiny, NAMED)[0] == 2
    assert capsys.readouterr().err == "error: schemas: 0 places are like 'any_one < any_other': expected 1\n"


def test_an_error_of_the_simulation_itself_counts_unless_it_is_there_without_the_mutant(tiny: Path) -> None:
    assert search(tiny, NAMED, seeds="9-9")[0] == 1
    run = tiny / "tests/sim/run.py"
    run.write_text(RUN.replace("seed == 9", "seed == 9 and smaller(1, 2) == 2"))
    code, page = search(tiny, NAMED, seeds="9-9")
    assert code == 0
    assert rows(page)[0].endswith("| seed 9 | 0 | the simulation raises KeyError: 2 |")


def test_mutants_about_which_it_is_not_asked_are_tried_by_name(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, page = search(tiny, UNASKED, "swap")
    assert (code, rows(page)) == (0, [])
    assert "killed   swapped by seed 4" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        search(tiny, UNASKED)
    assert "the simulation is asked about no mutant" in capsys.readouterr().err


def test_seeds_with_the_named_events_come_first() -> None:
    made = NAMED._replace(verbs=("doubt", "kill"))
    order = seeds_for(made, range(990, 1030))
    assert sorted(order) == list(range(990, 1030))

    def least(seed: int) -> int:
        return min(sum(event.verb == verb for event in draw(seed).events) for verb in ("doubt", "kill"))

    assert [least(seed) for seed in order] == sorted((least(seed) for seed in range(990, 1030)), reverse=True)
    with pytest.raises(TreeError, match="swapped: there is no event nothing"):
        seeds_for(made._replace(verbs=("nothing",)), range(3))


def test_a_page_has_no_row_for_a_mutant_without_a_killer() -> None:
    made = [NAMED._replace(name=name) for name in ("one", "two")]
    page = page_of(made, {"two": Killing(1, 2, "wrong")})
    assert rows(page) == ["| `two` | the larger one is taken | seed 1 | 2 | wrong |"]


@pytest.mark.timeout(240)
def test_a_seed_of_the_real_simulation_kills_a_real_mutant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    seed = known_from(PAGE.read_text())["ledger-base-unchecked"].seed
    assert main(["ledger-base-unchecked", "--seeds", f"{seed}-{seed + 11}"], page=page) == 0
    assert "a message of the ledger counts and must not" in capsys.readouterr().out
    assert list(known_from(page.read_text())) == ["ledger-base-unchecked"]


# The oracle.


def epoch(number: int, base: int) -> Epoch:
    return Epoch(number, base, 0, 0, "holder", Settings())


def sealed_at(message: Message, sequence: int, before: bytes) -> tuple[bytes, bytes]:
    """Bytes of a record with the right digest, and the digest."""
    envelope = sealed(message)
    digest = chained(before, sequence, envelope)
    return msgspec.structs.replace(envelope, chain=digest).encode(), digest


def test_the_oracle_knows_epochs_and_bases() -> None:
    oracle = LedgerOracle()

    def read(sequence: int, message: Message) -> bool:
        return oracle.read(sequence, sealed_at(message, sequence, before)[0])

    before = FIRST
    assert read(1, epoch(1, 0))
    before = oracle.position.digest
    assert read(2, Round(1, 1, 0, 0, 1))
    before = oracle.position.digest
    assert not read(3, Round(1, 1, 0, 0, 2)), "another base"
    assert not read(4, Round(2, 3, 0, 0, 2)), "another epoch"
    assert not read(5, epoch(1, 4)), "an epoch that began already"
    assert not oracle.read(6, encode(TimerSeen(1))), "no record"
    assert not oracle.read(7, b"nothing")
    assert read(8, epoch(2, 7))
    assert oracle.position[:2] == (8, 2)
    assert read(8, Round(1, 7, 0, 0, 2)), "the stream was cut, and this is stored instead"
    with pytest.raises(ValueError, match="message 12 follows on 8"):
        oracle.read(12, b"")


def test_the_oracle_knows_the_chain() -> None:
    oracle = LedgerOracle()
    first, digest = sealed_at(epoch(1, 0), 1, FIRST)
    assert oracle.read(1, first)
    assert not oracle.read(2, encode(Round(1, 1, 0, 0, 1))), "no digest"
    assert not oracle.read(3, sealed_at(Round(1, 2, 0, 0, 1), 3, FIRST)[0]), "another digest"
    assert not oracle.read(4, sealed_at(Round(0, 3, 0, 0, 1), 4, digest)[0]), "another epoch"
    assert oracle.read(5, sealed_at(Round(1, 4, 0, 0, 1), 5, digest)[0])
