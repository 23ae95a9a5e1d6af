"""``python -m tests.decisions FOLDER [--against FILE]``: write decisions as text, and hold them against another text.

``FOLDER/decisions.txt`` gets the decisions of all families, ``FOLDER/digests.txt`` a line for each: family, histories,
lines, digest. ``--family`` takes only some; ``--seeds`` fewer seeds, which alone are compared. Exit 0: written, and
equal to FILE; 1: there are differences; 2: wrong call. ``python -m tests.decisions --store`` writes the digests of the
form that a test compares.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.decisions.comparison import differences, read
from tests.decisions.families import FAMILIES, SEEDS, STORED, small, written


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the result is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.decisions", description="Decisions as text.")
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="gets the text and its digests")
    parser.add_argument("--against", type=Path, metavar="FILE", help="text of another tree")
    parser.add_argument(
        "--family", action="append", choices=sorted(FAMILIES), help="only this one; several may be named"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many seeds; {SEEDS} without it")
    parser.add_argument("--store", action="store_true", help="write the digests of the small form")
    options = parser.parse_args(arguments)
    if options.store:
        STORED.write_text(small(), encoding="utf-8")
        return 0
    if options.folder is None:
        parser.error("name a folder")
    text = options.folder / "decisions.txt"
    if options.against is not None and not options.against.is_file():
        parser.error(f"{options.against} is no file")
    before = read(options.against) if options.against is not None else None
    options.folder.mkdir(parents=True, exist_ok=True)
    digests: list[str] = []
    with text.open("w", encoding="utf-8") as stream:
        for family in options.family or FAMILIES:
            digests.append(written(family, FAMILIES[family](options.seeds), stream.write).text())
            sys.stdout.write(f"{digests[-1]}\n")
            sys.stdout.flush()
    (options.folder / "digests.txt").write_text("".join(f"{line}\n" for line in digests), encoding="utf-8")
    if before is None:
        return 0
    after = read(text)
    if options.seeds < SEEDS:
        before = {heading: lines for heading, lines in before.items() if heading in after}
    found = list(differences(before, after))
    sys.stdout.write("".join(f"{line}\n" for line in found) or "no decision differs\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
