"""``python -m tests.mutants``: try a sample of generated mutants, and write the score of each package.

Exit 0: at least the wanted share is noticed; 1: less; 2: wrong call, or a tree that cannot be judged.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.mutants.covering import FOLDERS, cover_of, is_test
from tests.mutants.equivalents import equivalents_in, reasons_for
from tests.mutants.generator import Site, sites_in
from tests.mutants.made import MADE, mutant_named
from tests.mutants.outcomes import Mutant, Outcome, digest_for, known, load, mutant_of, save
from tests.mutants.reports import Sample, line_of, page_of, summary_of
from tests.mutants.trees import TreeError, copy_of, digest_of, files_of, product_of
from tests.mutants.trials import tried

_OWN: Final = Path(__file__).parents[2]
_PAGE: Final = _OWN / "docs/results/mutants.md"
_JUDGED: Final = ("berth/", "services/", "schemas/", "tests/")
_TOOL: Final = "tests/mutants/"
_WANTED: Final = 85.0
"""Percent of the mutants that tests must notice."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the result is the exit code.

    Args:
        arguments: Words of the command line; those of the process when None.
    """
    options = _parser().parse_args(arguments)
    root: Path = options.root.resolve()
    kept: Path = options.kept or _OWN / ".mutants" / ("" if root == _OWN else root.name)
    try:
        with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
            copy = copy_of(root, Path(folder) / "tree")
            names = [name for name in files_of(root) if name.startswith(_JUDGED) and not name.startswith(_TOOL)]
            tree = digest_of(copy, names)
            kept_cover = kept / f"cover-{digest_of(copy, [one for one in names if not is_test(one)])}.ndjson"
            sites = [site for path in product_of(copy) for site in sites_in(path, (copy / path).read_bytes())]
            mutants = _made(copy, options.names) if options.made else _sampled(copy, sites, options)
            # Another tool may choose other tests for what survived.
            tool = digest_of(_OWN, [path.relative_to(_OWN).as_posix() for path in (_OWN / _TOOL).rglob("*.py")])
            outcomes = _outcomes(copy, tree + tool, mutants, kept, kept_cover, options.jobs)
    except TreeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    equivalent = reasons_for(mutants, equivalents_in())
    page: Path | None = options.page
    if page is None and root == _OWN and not (options.names or options.made):
        page = _PAGE
    if page is not None:
        folders = ", ".join(f"`{name}`" for name in FOLDERS)
        sample = Sample(options.seed, len(sites), f"`{tree[:12]}` on commit `{_commit_of(root)}`", folders)
        page.write_text(page_of(sample, outcomes, equivalent), "utf-8")
    sys.stdout.write(summary_of(outcomes, equivalent) + "\n")
    counted = [outcome for mutant, outcome in outcomes if mutant.name not in equivalent]
    noticed = sum(outcome.verdict != "survived" for outcome in counted)
    wanted = 100.0 if options.made else _WANTED
    return 0 if 100 * noticed >= wanted * len(counted) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Small faults that tests must notice.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only mutants whose names begin so")
    parser.add_argument("--count", type=_positive, default=300, metavar="N", help="how many generated ones (300)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice (1)")
    parser.add_argument("--made", action="store_true", help="those that are made by hand instead of generated ones")
    parser.add_argument("--root", type=Path, default=_OWN, metavar="FOLDER", help="checkout that is judged (this one)")
    parser.add_argument("--jobs", type=_positive, default=2, metavar="N", help="processes that run tests (2)")
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="what is known (.mutants)")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="where the score is written (docs/results/mutants.md)"
    )
    return parser


def _positive(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word}: expected a number from 1")
    return number


def _sampled(copy: Path, sites: Iterable[Site], options: argparse.Namespace) -> list[Mutant]:
    """Some of the generated mutants: those with a name, or a sample of all.

    Raises:
        TreeError: None has such a name.
    """
    chosen = sorted((site for site in sites if site.name.startswith(tuple(options.names) or "")), key=_name)
    if not chosen:
        raise TreeError(f"no mutant is called {options.names[0]}")
    if not options.names and options.count < len(chosen):
        chosen = random.Random(options.seed).sample(chosen, options.count)  # noqa: S311  # no secret
    return [mutant_of(site, (copy / site.path).read_bytes()) for site in chosen]


def _name(site: Site) -> str:
    return site.name


def _made(copy: Path, names: Sequence[str]) -> list[Mutant]:
    """Those that are made by hand, or some of them by name.

    Raises:
        TreeError: None has such a name, or one has no place.
    """
    chosen = [name for name in sorted(MADE) if name.startswith(tuple(names) or "")]
    if not chosen:
        raise TreeError(f"no mutant that is made by hand is called {names[0]}")
    return [mutant_named(name, copy) for name in chosen]


def _outcomes(
    copy: Path, tree: str, mutants: Sequence[Mutant], kept: Path, kept_cover: Path, jobs: int
) -> list[tuple[Mutant, Outcome]]:
    """What became of mutants, what is known included."""
    memory = load(kept / "outcomes.json")
    done = {mutant.name: outcome for mutant, outcome in known(copy, memory, list(mutants), tree)}
    _tell(f"{len(done)} of {len(mutants)} are known")
    waiting = [mutant for mutant in mutants if mutant.name not in done]
    if waiting:
        cover = cover_of(copy, kept_cover, jobs=jobs, tell=_tell)
        _tell(f"{len(cover)} tests execute the product in their own process")
        for mutant, outcome in tried(copy, cover, waiting, jobs=jobs):
            found = msgspec.structs.replace(outcome, digest=digest_for(copy, mutant, outcome, tree))
            memory[mutant.name] = done[mutant.name] = found
            save(kept / "outcomes.json", memory)
            _tell(line_of(mutant, found))
    return [(mutant, done[mutant.name]) for mutant in mutants]


def _commit_of(root: Path) -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],  # noqa: S607  # whichever the user has
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.strip()


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs tests ends, too
    sys.exit(main())
