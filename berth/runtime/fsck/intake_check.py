"""Check of INTAKE and DEAD: what cannot be read as a request has a dead letter that says so."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from berth.core.requests.dead_reasons import CODES, code_of
from berth.core.requests.intake_messages import NoRequestError, read_request
from berth.core.verification.findings import Checked, Finding, Findings
from berth.runtime.bus.port import Bus, Stored, StreamState
from berth.runtime.clock import Clock
from berth.runtime.dead_letters.letters import Found, read_letters
from berth.runtime.fsck.status_check import SETTLE_S, Pause, is_led
from berth.runtime.fsck.streams import each
from berth.schemas.subjects import StreamName

_INTAKE: Final = "INTAKE"
_DEAD: Final = "DEAD"


async def check_intake(
    bus: Bus, clock: Clock, intake: StreamState, *, wait: Pause
) -> tuple[list[Finding], list[Checked]]:
    """Check INTAKE, and compare it with DEAD. Nothing that is found needs a change.

    Args:
        bus: The cell.
        clock: Source of time, for the wait.
        intake: State of INTAKE; later messages are left out.
        wait: Waits before the next look at what a dispatcher is about to write.

    Raises:
        ChangedError: The cell removed the oldest requests meanwhile.
        TransientError: The bus did not answer.
    """
    refused: dict[int, tuple[str, str]] = {}
    count = 0

    def take(stored: Stored) -> None:
        nonlocal count
        count += 1
        try:
            read_request(bus.subjects, stored.subject, stored.data)
        except NoRequestError as error:
            refused[stored.sequence] = (stored.subject, str(error))

    await each(bus, StreamName.INTAKE, intake, take)
    letters = await read_letters(bus)
    led = await is_led(bus)
    end_s = clock.monotonic_s() + SETTLE_S
    while led and _without_letter(refused, letters) and clock.monotonic_s() < end_s:
        await wait()
        letters = await read_letters(bus)
    found = Findings()
    for sequence in _without_letter(refused, letters):
        subject, reason = refused[sequence]
        text = f"it is no request: {reason}; DEAD has no letter that says so"
        if not led:
            text += ". A dispatcher that leads writes one if it has not judged the message yet"
        found.add(Finding("unreadable-request", _INTAKE, sequence, sequence, subject, text))
    found.extend(_letter_findings(letters))
    return found.all(), [Checked("requests", count), Checked("dead letters", len(letters.letters))]


def _without_letter(refused: Mapping[int, tuple[str, str]], letters: Found) -> list[int]:
    known = {one.body.sequence for one in letters.letters if one.body.stream == StreamName.INTAKE}
    return [sequence for sequence in refused if sequence not in known]


def _letter_findings(letters: Found) -> list[Finding]:
    """What is to be known of the letters themselves."""
    found = [
        Finding("unreadable-letter", _DEAD, sequence, sequence, "", "it is no dead letter; readers pass over it")
        for sequence in letters.unreadable
    ]
    open_ones = [one for one in letters.letters if one.is_open]
    if open_ones:
        count = Counter(code_of(one.body) for one in open_ones)
        kinds = ", ".join(f"{count[code]} {code}" for code in CODES if count[code])
        first, last = min(one.revision for one in open_ones), max(one.revision for one in open_ones)
        text = f"messages that can never be handled: {kinds}; see: berth dead list"
        found.append(Finding("dead-letters", _DEAD, first, last, "", text))
    return found
