"""``berth ask``: when a job that is not submitted would be expected to start."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.interrupts import interruptible
from berth.cli.jobs.forecast import forecast_now
from berth.cli.jobs.requests import Fault, read_requests
from berth.cli.jobs.submit import cell_faults
from berth.cli.output import FAILED, OK, WRONG_USE, CommandError, complain, emit, moment, print_result, warn
from berth.core.expected.expectation import ExpectedStart, sentences
from berth.formats.yaml_tree import is_dns_name


class Asked(msgspec.Struct, frozen=True):
    """Result of ``berth ask --json``: faults of the file, or the answer for each job."""

    faults: list[Fault] = []
    jobs: list[ExpectedStart] = []
    at_ms: int = 0
    facts_seq: int = 0
    ledger_seq: int = 0
    """Last record of the ledger that the answer knows."""


def ask_start(
    *,
    file: Annotated[tuple[str, ...], Parameter(name=["--file", "-f"], negative=(), allow_leading_hyphen=True)],
    queue: str = "",
    victims: bool = False,
    common: Common | None = None,
) -> int:
    """Show when jobs of a file would be expected to start if they were submitted now; nothing is submitted.

    Args:
        file: Manifest in YAML, as of berth submit; - for stdin. Each job is answered for itself.
        queue: Queue of all jobs of the file, whatever queue they name.
        victims: Show which jobs would end for each, in a cell with preemption.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        if queue and not is_dns_name(queue):
            raise CommandError(f"--queue is {queue!r}, expected the name of a queue", code=WRONG_USE)
        with interruptible():
            requests, faults, skipped = read_requests(file, queue)
        warn(skipped)
        if faults:
            return _refuse(faults, options)
        async with connected(options) as bus:
            faults = await cell_faults(bus, requests)
            if faults:
                return _refuse(faults, options)
            forecast = await forecast_now(bus)
        found = [forecast.ask(sent.request, with_victims=victims) for sent in requests]
        if victims and not forecast.settings.preempt:
            warn(["no job ends for others: setting decisions.preempt of the dispatcher is 0"])
        if options.json:
            emit(Asked([], found, forecast.at_ms, forecast.facts_seq, forecast.ledger_seq))
            return OK
        for one in found:
            print_result(f"{one.namespace}/{one.name}")
            for line in sentences(one, moment, at_ms=forecast.at_ms):
                print_result(f"  {line}")
        return OK

    return run(work)


def _refuse(faults: list[Fault], options: Common) -> int:
    if options.json:
        emit(Asked(faults))
    else:
        complain(fault.line() for fault in faults)
    return FAILED
