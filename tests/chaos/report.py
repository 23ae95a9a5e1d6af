"""Figures of runs as text, and as a page of results; the command of a run. Pure."""

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from statistics import median

from tests.chaos.run import Figures, Options, Recovery
from tests.chaos.schedule import SHORT


def summary(figures: Figures) -> str:
    """Figures of one run, some lines."""
    verdict, counts = figures.verdict, figures.operations
    lines = [
        f"{figures.injected.total()} faults in {figures.rounds} rounds, {figures.overlaps} pairs at the same time: "
        + ", ".join(f"{kind} {count}" for kind, count in sorted(figures.injected.items())),
        f"recovery: next placement {_spread([one.next_s for one in figures.recoveries])}, "
        f"of a new job {_spread([one.probe_s for one in figures.recoveries])}",
        f"submits: {counts['submit', 'ok']} acknowledged, {counts['submit', 'unknown']} without answer, "
        f"{counts['submit', 'failed']} refused; cancels: {counts['cancel', 'ok']} acknowledged, "
        f"{counts['cancel', 'unknown']} without answer, {counts['cancel', 'failed']} refused",
        f"jobs: {verdict.acknowledged} acknowledged ({_counted(verdict.fates)}), {verdict.unknown} unknown of which "
        f"{verdict.present} are there, {verdict.refused} never there; {verdict.sequences} acknowledged requests looked up by sequence",
        f"ledger: {figures.records} records, {verdict.placings} placements; {figures.looks} looks, {verdict.pods} pods",
        f"proxies: {_counted(figures.pieces)}; started again after they ended by themselves: "
        + (_counted(figures.restarts) or "none"),
        f"lost {lost(figures)}, doubled {doubled(figures)}, other violations {other(figures)}",
    ]
    lines += [f"VIOLATION {one.kind}: {one.what}" for one in verdict.violations[:40]]
    return "\n".join(lines)


def command(options: Options) -> str:
    """What draws the same plan for the same cell, with every option that has a say in it."""
    words = ["python", "-m", "tests.chaos", "--cells", f"{options.setup.world}-{options.setup.servers}"]
    words += ["--seed", str(options.seed), "--seconds", f"{options.seconds:g}", "--rounds", str(options.rounds_min)]
    if options.faults:
        words += ["--faults", ",".join(options.faults)]
    if options.length == SHORT:
        words.append("--short")
    return shlex.join(words)


def lost(figures: Figures) -> int:
    """Acknowledged jobs that nobody can account for."""
    return figures.verdict.count("lost", "not settled")


def doubled(figures: Figures) -> int:
    """Jobs, ranks or chips that were given twice."""
    return figures.verdict.count("doubled", "chip twice", "double_allocations")


def other(figures: Figures) -> int:
    """All other violations."""
    return len(figures.verdict.violations) - lost(figures) - doubled(figures)


def page(runs: Sequence[Figures]) -> str:
    """The page of results."""
    injected = sum((one.injected for one in runs), Counter[str]())
    recoveries = list(chain.from_iterable(one.recoveries for one in runs))
    names = [f"{one.options.setup.world}-{one.options.setup.servers}" for one in runs]
    rows: list[tuple[str, list[str]]] = [
        ("seed", [str(one.options.seed) for one in runs]),
        ("minutes", [f"{one.took_s / 60:.1f}" for one in runs]),
        ("rounds", [str(one.rounds) for one in runs]),
        ("faults", [str(one.injected.total()) for one in runs]),
        ("pairs of faults at the same time", [str(one.overlaps) for one in runs]),
        ("next placement after healing: p50, max", [_spread([r.next_s for r in one.recoveries]) for one in runs]),
        ("placement of a new job: p50, max", [_spread([r.probe_s for r in one.recoveries]) for one in runs]),
        ("submits acknowledged", [str(one.operations["submit", "ok"]) for one in runs]),
        ("submits without answer", [str(one.operations["submit", "unknown"]) for one in runs]),
        ("submits refused", [str(one.operations["submit", "failed"]) for one in runs]),
        ("cancels acknowledged", [str(one.operations["cancel", "ok"]) for one in runs]),
        ("records in the ledger", [str(one.records) for one in runs]),
        ("placements", [str(one.verdict.placings) for one in runs]),
        ("events of jobs, each once", [str(one.verdict.events) for one in runs]),
        ("looks at the cluster", [str(one.looks) for one in runs]),
        ("services that ended by themselves", [str(one.restarts.total()) for one in runs]),
        ("**lost**", [str(lost(one)) for one in runs]),
        ("**doubled**", [str(doubled(one)) for one in runs]),
        ("other violations", [str(other(one)) for one in runs]),
    ]
    lines = [
        "# Chaos on real components",
        "",
        "Written by `make chaos SECONDS=... PAGE=docs/results/chaos.md`; how it works is in `docs/testing.md`. A cell",
        "is `kube` (kube-apiserver, etcd, all services, jobs are objects) or `bus` (the cluster is on the bus, requests",
        "go to it), with one or three nats-servers. All processes of a run shared one machine with two cores; the times",
        "are those of such a machine.",
        "",
        f"| | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
        *(f"| {name} | {' | '.join(values)} |" for name, values in rows),
        "",
        "What became of the jobs whose submit was acknowledged (absent: deleted by a user):",
        "",
        *(f"- `{name}`: {_counted(one.verdict.fates)}" for name, one in zip(names, runs, strict=True)),
        "",
        "| fault | injected | next placement, p50, max | placement of a new job, p50, max |",
        "|---|---|---|---|",
        *(_kind_row(kind, count, recoveries) for kind, count in sorted(injected.items())),
        "",
        "A recovery counts for each kind of fault in its round.",
        "",
    ]
    return "\n".join(lines)


def _kind_row(kind: str, count: int, recoveries: Sequence[Recovery]) -> str:
    own = [one for one in recoveries if kind in one.kinds]
    return f"| {kind} | {count} | {_spread([r.next_s for r in own])} | {_spread([r.probe_s for r in own])} |"


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} s, {max(values):.2f} s" if values else "none"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count)
