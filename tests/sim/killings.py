"""What kills mutants in the simulation: the search, and the page that tells it.

A mutant that is made by hand says whether a seed must kill it or why none can (:mod:`tests.mutants.made.registry`).
Seeds change their stories when the simulation changes, so the page holds what was found last, and the search begins
with it.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.mutants.made.registry import Made
from tests.mutants.outcomes import Mutant
from tests.mutants.trees import TreeError
from tests.sim.story import OWNERS, RIVALS, WEIGHTS, draw

PAGE: Final = Path(__file__).with_name("MUTANTS.md")
_CALLBACKS_MAX: Final = 600_000
"""Ten times what a seed usually takes: a cell that runs in circles is found sooner than in ``make sim``."""
_LIVE: Final = f"""
import json, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.mutants.loading import import_texts, leave
leave({{"tests"}})
del sys.path[0]
import_texts(Path.cwd(), json.loads(sys.stdin.read()))
from tests.sim import run
run.CALLBACKS_MAX = {_CALLBACKS_MAX}
for seed in map(int, sys.argv[1:]):
    try:
        lived = run.live(seed)
        said = [seed, lived.steps, lived.kind, lived.trace]
    except Exception as error:
        said = [seed, 0, f"the simulation raises {{type(error).__name__}}: {{error!s:.100}}", ""]
    print(json.dumps(said), flush=True)
    if said[2]:
        break
"""
_HEAD: Final = """# Mutants in the simulation

Mutants of `tests/mutants/made` whose faults a whole cell shows, and what shows them: the first failing seed of the
simulation that was found, after how many of its steps, and what it says. Where no seed does, tests notice the mutant
(`make mutants ARGS=--made`), and the table says why. `make sim-mutants` searches anew, the known seed first, and writes
this page; it fails if a seed fails without any mutant, or if no seed kills a mutant that one must kill. With
`ARGS="--disprove 10"` it tries so many seeds for each of the others as well, and fails if one kills it.

| mutant | the change | killed by | steps | what is wrong |
|---|---|---|---|---|
"""
_ROW: Final = re.compile(r"^\| `([^`]+)` \| .* \| seed (\d+) \| (\d+) \| (.*) \|$", re.MULTILINE)


class Lived(msgspec.Struct, array_like=True, frozen=True):
    """How a seed went in a copy of the tree; ``kind`` is empty if nothing was wrong."""

    seed: int
    steps: int
    kind: str
    trace: str


class Killing(msgspec.Struct, frozen=True):
    """What kills a mutant.

    Attributes:
        seed: The seed; -1 where no seed can.
        steps: Steps of the simulation until then.
        kind: What is wrong.
    """

    seed: int
    steps: int = 0
    kind: str = ""


class Survived(Exception):  # noqa: N818  # what became of a mutant
    """Nothing kills a mutant, or it could not be tried; the message says which."""


def lived_in(root: Path, mutant: Mutant | None, seeds: Sequence[int], *, limit_s: float) -> list[Lived]:
    """Live through seeds with a mutant, until one fails.

    Args:
        root: The tree; its files do not change.
        mutant: What is imported instead; None for the tree as it is.
        seeds: The seeds.
        limit_s: Longest time for all of them.

    Raises:
        Survived: The simulation does not run, or not within the time.
    """
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter and text
            [sys.executable, "-c", _LIVE, *map(str, seeds)],
            cwd=root,
            input=msgspec.json.encode(mutant.texts if mutant is not None else {}).decode(),
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as error:
        raise Survived(f"seeds {seeds[0]} to {seeds[-1]} take more than {limit_s:.0f} s") from error
    if done.returncode:
        raise Survived(f"the simulation does not run: {' / '.join(done.stderr.splitlines()[-3:])}")
    return [msgspec.json.decode(line, type=Lived) for line in done.stdout.splitlines()]


def seeds_for(mutant: Made, seeds: Iterable[int]) -> list[int]:
    """Seeds in the order in which they are tried: first those in which most happens of what the mutant names.

    Raises:
        TreeError: It names an event that there is not.
    """
    verbs = sorted({*WEIGHTS, *OWNERS, *RIVALS})
    unknown = [verb for verb in mutant.verbs if verb not in verbs]
    if unknown:
        raise TreeError(f"{mutant.name}: there is no event {unknown[0]}; there are {', '.join(verbs)}")
    if not mutant.verbs:
        return list(seeds)

    def rank(seed: int) -> tuple[int, int]:
        told = Counter(event.verb for event in draw(seed).events)
        return -min(told[verb] for verb in mutant.verbs), -sum(told[verb] for verb in mutant.verbs)

    return sorted(seeds, key=rank)


class Search:
    """Looks for seeds that kill mutants.

    Args:
        root: The tree.
        seeds: Seeds to choose from.
        most: How many of them are lived through for a mutant.
        limit_s: Longest time for all seeds of a mutant.
        disprove: How many seeds are lived through for a mutant that no seed is said to kill.
    """

    def __init__(self, root: Path, seeds: Sequence[int], *, most: int, limit_s: float, disprove: int = 0) -> None:
        self._root = root
        self._seeds = seeds
        self._most = most
        self._limit_s = limit_s
        self._disprove = disprove
        self._sound: set[int] = set()

    def killing(self, made: Made, mutant: Mutant, known: Killing | None) -> Killing:
        """What kills a mutant.

        Args:
            made: How it is made.
            mutant: The mutant.
            known: What killed it before.

        Raises:
            Survived: Nothing does, it could not be tried, or a seed kills one that none is said to kill.
        """
        if made.unseen:
            tried = self._seeds[: self._disprove]
            if tried and (last := self._lives(mutant, tried)[-1]).kind:
                self._see_sound(last.seed)
                raise Survived(f"the reason is not so: seed {last.seed} kills it: {last.kind}")
            return Killing(-1)
        first = [known.seed] if known is not None and known.seed >= 0 else []
        seeds = [*first, *(seed for seed in seeds_for(made, self._seeds)[: self._most] if seed not in first)]
        lives = self._lives(mutant, seeds)
        last = lives[-1]
        if not last.kind:
            raise Survived(f"lives through {len(lives)} seeds")
        self._see_sound(last.seed)
        return Killing(last.seed, last.steps, last.kind)

    def _lives(self, mutant: Mutant | None, seeds: Sequence[int]) -> list[Lived]:
        return lived_in(self._root, mutant, seeds, limit_s=self._limit_s)

    def _see_sound(self, seed: int) -> None:
        """See that a seed fails because of the mutant.

        Raises:
            Survived: It fails without one.
        """
        if seed in self._sound:
            return
        without = self._lives(None, [seed])[0]
        if without.kind:
            raise Survived(f"seed {seed} fails without any mutant: {without.kind}")
        self._sound.add(seed)


def known_from(page: str) -> dict[str, Killing]:
    """What a page says of the mutants that a seed killed."""
    return {
        name: Killing(int(seed), int(steps), kind.replace("\\|", "|")) for name, seed, steps, kind in _ROW.findall(page)
    }


def page_of(mutants: Iterable[Made], found: Mapping[str, Killing]) -> str:
    """The page; a mutant that a seed must kill has no row without one."""
    return _HEAD + "".join(
        _row(mutant, found.get(mutant.name)) for mutant in mutants if mutant.unseen or mutant.name in found
    )


def _row(mutant: Made, killing: Killing | None) -> str:
    says = _cell(mutant.says)
    if mutant.unseen or killing is None:
        return f"| `{mutant.name}` | {says} | tests | | {_cell(mutant.unseen)} |\n"
    return f"| `{mutant.name}` | {says} | seed {killing.seed} | {killing.steps} | {_cell(killing.kind)} |\n"


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ")
