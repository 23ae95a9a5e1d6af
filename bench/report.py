"""Result of a bench: rows with value, limit, ratio and target, as JSON or as a table."""

import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured value.

    ``limit`` is the value of the bare program in the same run and unit, ``ratio`` is value divided by limit, ``target``
    is the required value, and ``ok`` says whether it is met. None without a limit or a target. ``can_be_zero``: a value
    of 0 or less says something, as of a difference or of a count; all other values are measured ones above 0.
    """

    case: str
    metric: str
    unit: str
    value: float
    limit: float | None = None
    ratio: float | None = None
    target: float | None = None
    ok: bool | None = None
    can_be_zero: bool = False


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of the run."""

    processor: str
    cores: int
    system: str
    python: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All values of a bench."""

    bench: str
    machine: Machine
    rows: list[Row]


def row(
    case: str,
    metric: str,
    unit: str,
    values: Sequence[float],
    *,
    limits: Sequence[float] = (),
    target: float | None = None,
    better: Literal["less", "more"] = "less",
    can_be_zero: bool = False,
) -> Row:
    """Row with the median of ``values`` and the median of ``limits``."""
    value = statistics.median(values)
    limit = statistics.median(limits) if limits else None
    ok = None if target is None else (value <= target if better == "less" else value >= target)
    return Row(
        case=case,
        metric=metric,
        unit=unit,
        value=round(value, 4),
        limit=round(limit, 4) if limit is not None else None,
        ratio=round(value / limit, 3) if limit else None,
        target=target,
        ok=ok,
        can_be_zero=can_be_zero,
    )


def machine() -> Machine:
    """The machine of this process."""
    cpu = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
        if cpu.exists()
        else []
    )
    return Machine(
        processor=names[0] if names else platform.processor(),
        cores=len(names) or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
    )


def show(report: Report, *, as_json: bool) -> None:
    """Print a report: as one JSON document, or as a table."""
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n")
        return
    table = Table(title=f"{report.bench}: {report.machine.processor}, {report.machine.cores} cores")
    for heading in ("case", "metric", "value", "unit", "limit", "ratio", "target", "ok"):
        table.add_column(heading, justify="left" if heading in {"case", "metric", "unit"} else "right")
    for line in report.rows:
        cells = (line.case, line.metric, line.value, line.unit, line.limit, line.ratio, line.target, line.ok)
        table.add_row(*["" if cell is None else str(cell) for cell in cells])
    Console().print(table)
