"""``python -m bench.results``: simulates real traces and writes tables, plots and settings to ``docs/results``.

The traces are no part of the tree; :func:`tests.support.traces.traces_folder` says where they are looked for. Names of
studies and sweeps as arguments: these alone, the rest of the pages stays. As many run at a time as there are CPUs.
"""

import os
import sys
import textwrap
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from bench.results import studies, sweeps
from bench.results.studies import FOLDER, Study
from bench.results.sweeps import Sweep
from berth.cli.simulation.pictures import write_file
from berth.core.simulation.statistics import Statistics
from tests.support.traces import FILES, traces_folder

_COLUMNS: Final = 120
_INTRODUCTION: Final = """\
# Results on real traces

Made by `make results`, which runs `python -m bench.results`; nothing here is written by hand. What each figure means is
in [simulate.md](../simulate.md#metrics). The traces are no part of the tree:

- Kalos: Shanghai AI Laboratory's cluster (InternLM/AcmeTrace, CC BY 4.0), 319 jobs of 90 days of 2023.
- Philly: Microsoft's clusters (msr-fiddle/philly-traces, CC BY 4.0), 82,247 jobs of autumn 2017.

There are no failures in them. Those of some tables are synthetic: drawn from models with the rates of another
cluster ([failures](../simulate-failures.md)).
A leaf switch has 16 nodes of 8 chips. Times are seconds of the trace.
`conservative` is left out for Philly: each of its rounds plans for thousands of jobs that wait.

- [Kalos, arrivals 8 times as dense](kalos-8.md)
- [Kalos, arrivals 12 times as dense](kalos-12.md)
- [Kalos with failures](kalos-failures.md)
- [Philly](philly.md)
"""
_PAGES: Final = (
    ("kalos-8.md", "Kalos, arrivals 8 times as dense"),
    ("kalos-12.md", "Kalos, arrivals 12 times as dense"),
    ("kalos-failures.md", "Kalos with failures"),
    ("philly.md", "Philly"),
)
"""Each page with its title, with which the headings of its parts begin."""
_ABOUT: Final = "Made by `make results`. What the figures mean, and where the traces come from: [results](README.md)."
_ORIENTATION: Final = {
    ("kalos-x8-queue", "fifo"): (23_056.0, 1.0),
    ("kalos-x8-queue", "skip"): (15_137.0, 1.0),
    ("kalos-x8-nodes", "skip, random nodes"): (15_137.0, 4.25),
    ("kalos-x8-queue", "easy"): (15_024.0, 1.0),
    ("philly-64-queue", "fifo"): (794_130.0, 1.83),
    ("philly-64-queue", "skip"): (93_928.0, 1.74),
    ("philly-64-queue", "easy"): (240_397.0, 1.69),
}
"""Mean wait in s and ratio of the leaf span, from a small simulator that is published with the traces."""


def main() -> int:
    """Run all studies and sweeps, or the named ones, and write them to the folder; returns the exit code."""
    missing = [path for name in FILES.values() if not (path := traces_folder() / name).is_file()]
    if missing:
        print(f"no trace at {missing[0]}; the variable BERTH_TRACES names the folder", file=sys.stderr)
        return 1
    known: list[Study | Sweep] = [*studies.studies(), *sweeps.sweeps()]
    names = [one.name for one in known]
    unknown = [name for name in sys.argv[1:] if name not in names]
    if unknown:
        print(f"no study {unknown[0]}, expected one of {', '.join(names)}", file=sys.stderr)
        return 2
    chosen = [one for one in known if not sys.argv[1:] or one.name in sys.argv[1:]]
    start_s = time.perf_counter()
    with ProcessPoolExecutor(min(len(chosen), os.cpu_count() or 1)) as pool:
        made = list(pool.map(_made, chosen))
    print(f"all: {time.perf_counter() - start_s:.0f} s", file=sys.stderr)
    found = {key: figures for _, one in made for key, figures in one.items()}
    parts = {one.heading: _wrapped(text) for one, (text, _) in zip(chosen, made, strict=True)}
    is_whole = len(chosen) == len(known)
    if is_whole:
        text = "\n".join([_wrapped(_INTRODUCTION), _beside(found)])
    else:
        text = _replaced((FOLDER / "README.md").read_text("utf-8"), {}, found)
    write_file(FOLDER / "README.md", f"{text.rstrip()}\n".encode())
    for name, title in _PAGES:
        own = {heading: part for heading, part in parts.items() if heading.startswith(title)}
        if own:
            head = f"# {title}\n\n{_ABOUT}\n"
            text = "\n".join([head, *own.values()])
            text = text if is_whole else _replaced((FOLDER / name).read_text("utf-8"), own, found)
            write_file(FOLDER / name, f"{text.rstrip()}\n".encode())
    return 0


def _made(one: Study | Sweep) -> tuple[str, dict[tuple[str, str], Statistics]]:
    """A part of the document, and its statistics by study and title."""
    return (sweeps.part_of(one), {}) if isinstance(one, Sweep) else studies.part_of(one)


def _wrapped(text: str) -> str:
    """Prose in lines of bounded length."""
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith("|"):
            lines.append(line)
        else:
            indent = "  " if line.startswith("- ") else ""
            kept = textwrap.wrap(
                line, _COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
            lines += kept or [""]
    return "\n".join(lines)


def _replaced(text: str, parts: Mapping[str, str], found: Mapping[tuple[str, str], Statistics]) -> str:
    """The document with updated parts, by heading."""
    sections = text.rstrip().split("\n## ")
    for heading, part in parts.items():
        new = part.removeprefix("## ")
        if not any(section.startswith(f"{heading}\n") for section in sections):
            sections.append(new)
        sections = [new if section.startswith(f"{heading}\n") else section for section in sections]
    lines = "\n## ".join(f"{section.rstrip()}\n" for section in sections).split("\n")
    anew = {_beside_start(*key): _beside_line(key, found[key]) for key in _ORIENTATION if key in found}
    return "\n".join(next((new for start, new in anew.items() if line.startswith(start)), line) for line in lines)


def _beside(found: Mapping[tuple[str, str], Statistics]) -> str:
    """Comparison with another program."""
    lines = ["## Beside another program", ""]
    lines += [
        "A small simulator by others came with the traces. Why figures differ is in [simulate.md](../simulate.md#results).",
        "",
    ]
    lines += [
        "| run | mean wait, other | mean wait, Berth | leaf span, other | leaf span, Berth |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [_beside_line(key, found[key]) for key in _ORIENTATION]
    return "\n".join([*lines, ""])


def _beside_start(study: str, title: str) -> str:
    return f"| {study}: {title} |"


def _beside_line(key: tuple[str, str], ours: Statistics) -> str:
    wait_s, span = _ORIENTATION[key]
    mean_s, ratio = ours.wait.mean_ms / 1000, ours.leaf_span.ratio_mean
    return f"{_beside_start(*key)} {wait_s:,.0f} | {mean_s:,.0f} | {span:.2f} | {ratio:.2f} |"


if __name__ == "__main__":
    sys.exit(main())
