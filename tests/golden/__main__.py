"""``python -m tests.golden DIR [--family NAME]``: hold a folder of vectors against the production functions.

Exit 0: all agree; 1: a difference, or something left out under a name that is not allowed; 2: wrong call.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.golden.families import FAMILIES
from tests.golden.harness import RUNS, Tally, family_of, run_file, vector_files


def run_folder(folder: Path, family: str | None = None) -> tuple[list[Tally], list[str]]:
    """Both runs of every built family in a folder, and the names of the families that are not built."""
    files = [path for path in vector_files(folder) if family in {None, family_of(path)}]
    tallies = [
        run_file(path, FAMILIES[family_of(path)], run=run, settings=settings)
        for path in files
        if family_of(path) in FAMILIES
        for run, settings in RUNS
    ]
    return tallies, [path.name for path in files if family_of(path) not in FAMILIES]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the result is the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden", description="Reference vectors against production code."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with .jsonl or .jsonl.gz files")
    parser.add_argument("--family", help="only this family: the name of its file without endings")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        return _complain(f"{options.folder} is not a folder")
    present = {family_of(path) for path in vector_files(options.folder)}
    if options.family is not None and options.family not in FAMILIES:
        known = "not built yet" if options.family in present else "unknown"
        return _complain(f"family {options.family} is {known}; built are {', '.join(sorted(FAMILIES))}")
    if not present or (options.family is not None and options.family not in present):
        return _complain(f"{options.folder} holds no vectors" + (f" of {options.family}" if options.family else ""))
    tallies, unbuilt = run_folder(options.folder, options.family)
    for tally in tallies:
        sys.stdout.write(tally.text() + "\n")
    for name in unbuilt:
        sys.stdout.write(f"{name:<36} not built yet\n")
    return 1 if any(tally.failed for tally in tallies) else 0


def _complain(words: str) -> int:
    sys.stderr.write(f"error: {words}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
