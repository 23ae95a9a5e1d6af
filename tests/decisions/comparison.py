"""Two texts of decisions, held against each other history by history."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

SHOWN_MAX: Final = 20
"""Histories whose first difference is shown."""
_LINES_MAX: Final = 12
"""Lines that are shown of each."""
_HEADING: Final = "== "


def read(path: Path) -> dict[str, list[str]]:
    """Lines of each history of a text, by heading."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(_HEADING):
            found[line] = []
        else:
            found[next(reversed(found))].append(line)
    return found


def differences(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> Iterator[str]:
    """Words for what differs; nothing if the texts are equal, but for histories that only one of them has.

    Families of which one text has no history are left out; of others a history that is missing is a difference.
    """
    families = {_family(heading) for heading in before} & {_family(heading) for heading in after}
    headings = [one for one in dict.fromkeys((*before, *after)) if _family(one) in families]
    changed = [one for one in headings if before.get(one) != after.get(one)]
    for heading in changed[:SHOWN_MAX]:
        yield heading
        if heading not in before or heading not in after:
            yield f"  only {'after' if heading in after else 'before'}"
            continue
        lines = difflib.unified_diff(before[heading], after[heading], "before", "after", lineterm="", n=2)
        shown = [line for line in lines if not line.startswith(("---", "+++"))]
        yield from (f"  {line}" for line in shown[:_LINES_MAX])
        if len(shown) > _LINES_MAX:
            yield f"  and {len(shown) - _LINES_MAX} lines more"
    if changed:
        yield f"{len(changed)} of {len(headings)} histories differ"


def _family(heading: str) -> str:
    return heading.removeprefix(_HEADING).partition(":")[0]
