"""``berth fsck``: checks everything that is stored of a cell, and changes nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, report, run
from berth.cli.output import FAILED, OK, WRONG_USE, CommandError, emit, print_result
from berth.core.errors import InvariantError
from berth.core.text import pluralize
from berth.core.verification.findings import Checked, Finding
from berth.formats.ascend.mark_proofs import MarkProofs
from berth.runtime.clock import SystemClock
from berth.runtime.errors import ShellError
from berth.runtime.fsck.cell_check import CellCheck, check_cell
from berth.runtime.keys.mark_keys import read_mark_keys
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import Api, RefusedError


class FindingRow(msgspec.Struct, frozen=True):
    """A finding, as ``--json`` prints it."""

    code: str
    where: str
    sequence: int
    last_seq: int
    name: str
    text: str
    repair: str
    """Empty if nothing needs to be done."""


class CheckedRow(msgspec.Struct, frozen=True):
    """How much one check looked at."""

    what: str
    count: int
    not_checked: str


class FsckResult(msgspec.Struct, frozen=True):
    """Result of ``berth fsck --json``."""

    clean: bool
    findings: list[FindingRow]
    checked: list[CheckedRow]
    ledger_seq: int
    facts_seq: int


def fsck(
    *,
    cluster: Annotated[bool, Parameter(negative=())] = False,
    kubeconfig: Annotated[Path | None, Parameter(show_default=False)] = None,
    context: Annotated[str, Parameter(show_default=False)] = "",
    marks_file: Annotated[Path | None, Parameter(show_default=False)] = None,
    common: Common | None = None,
) -> int:
    """Check ledger, snapshots, facts and statuses, and with --cluster the pods; nothing is changed.

    Args:
        cluster: Compare the bound pods on the API server with the ledger.
        kubeconfig: How to reach the API server. Default: as kubectl does, or the service account of the pod.
        context: Context of the kubeconfig.
        marks_file: Keys of pod marks, as in the setting of inventory and binder. Default: all marks count.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        if (kubeconfig is not None or context) and not cluster:
            raise CommandError("--kubeconfig and --context are for --cluster", code=WRONG_USE)
        if marks_file is not None and not cluster:
            raise CommandError("--marks-file is for --cluster", code=WRONG_USE)
        try:
            keys = read_mark_keys(marks_file, field="--marks-file") if marks_file is not None else ()
            async with (
                connected(options) as bus,
                _api(KubeConfig(kubeconfig=kubeconfig, context=context), cluster) as api,
            ):
                result = await check_cell(bus, SystemClock(), api=api, marks=MarkProofs(keys))
        except (CommandError, ShellError, InvariantError) as error:
            report(error)
            return WRONG_USE  # nobody knows whether the cell is clean
        if options.json:
            emit(_result_of(result))
        else:
            _show(result)
        return OK if result.is_clean else FAILED

    return run(work)


@asynccontextmanager
async def _api(config: KubeConfig, wanted: bool) -> AsyncIterator[Api | None]:  # noqa: FBT001  # whether there is one
    if not wanted:
        yield None
        return
    api = await KubeApi.connect(config, clock=SystemClock(), user_agent="berth-fsck")
    try:
        yield api
    except RefusedError as error:
        raise CommandError(f"the API server refuses ({error}); the user must be able to list pods and nodes") from error
    finally:
        await api.close()


def _result_of(result: CellCheck) -> FsckResult:
    return FsckResult(
        clean=result.is_clean,
        findings=[FindingRow(*msgspec.structs.astuple(one)) for one in result.findings],
        checked=[CheckedRow(*msgspec.structs.astuple(one)) for one in result.checked],
        ledger_seq=result.ledger_seq,
        facts_seq=result.facts_seq,
    )


def lines_of(result: CellCheck) -> list[str]:
    """Lines that the command prints: one for each finding, then how much was checked."""
    lines = [_line(one) for one in result.findings]
    lines.append(f"Checked up to record {result.ledger_seq} and fact {result.facts_seq}:")
    lines += [f"  {_checked(one)}" for one in result.checked]
    open_ones = sum(bool(one.repair) for one in result.findings)
    if open_ones:
        lines.append(f"{pluralize(open_ones, 'finding')} to repair; nothing was changed.")
    else:
        lines.append("Nothing is wrong." if not result.findings else "Nothing needs to be done.")
    return lines


def _line(one: Finding) -> str:
    return f"{one.place}: {one.text}. {f'Use: {one.repair}' if one.repair else 'Nothing needs to be done'}"


def _checked(one: Checked) -> str:
    if one.not_checked:
        return (
            f"{one.count} {one.what}; {one.not_checked}" if one.count else f"{one.what} not checked: {one.not_checked}"
        )
    return f"{one.count} {one.what}" if one.count else f"no {one.what}: nothing was checked"


def _show(result: CellCheck) -> None:
    for line in lines_of(result):
        print_result(line)
