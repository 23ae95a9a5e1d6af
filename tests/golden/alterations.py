"""Lines with other expectations, of which the harness has to notice each.

A field is named by its path, as in :data:`tests.golden.families.COMPARED`.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tests.golden.harness import Line

STRANGER: Final = "stranger"
"""What no line has."""
Alter = Callable[[object], object]
"""Another value in the place of one; the same value where there is nothing to alter."""
GUIDES: Final = frozenset({"super_pods_used", "pending_ranks", "job", "kind"})
"""Fields of answers that are not compared, but say how far others are facts, or what was asked."""
ASKED: Final = frozenset({"request"})
"""Fields beside answers that are no answers."""
ANSWERS: Final = frozenset(
    {
        "canonical",
        "chips_per_group",
        "chosen_alternatives",
        "chosen_card",
        "chosen_chips",
        "drops_net_unhealthy_when_distributed",
        "error",
        "final_scores",
        "forbidden_sizes",
        "handled",
        "handler_name",
        "handler_type",
        "job_invalid_message",
        "job_invalid_reason",
        "job_valid",
        "max_per_node",
        "pod_annotations",
        "predicate_errors",
        "resulting_device_list",
        "scores",
    }
)
"""Fields of whole lines that are answers."""


def more(value: object) -> object:
    """A number one higher, a text or a list with more in it, the other truth; for a mapping, in its first value."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case list():
            return [*value, more(value[-1]) if value else STRANGER]
        case dict() if value:
            first = next(iter(value))
            return value | {first: more(value[first])}
        case str() if value:
            return f"{STRANGER} {value}"
        case _:
            return STRANGER


def less(value: object) -> object:
    """A list or a mapping without its last element."""
    match value:
        case list():
            return value[:-1]
        case dict():
            return dict(list(value.items())[:-1])
        case _:
            return value


def added(value: object) -> object:
    """A mapping with one key more."""
    return value | {STRANGER: next(iter(value.values()), {})} if isinstance(value, dict) else value


def turned(value: object) -> object:
    """A list the other way round."""
    return value[::-1] if isinstance(value, list) else value


def swapped(value: object) -> object:
    """A mapping of which the first and the last key have each other's value."""
    if not isinstance(value, dict) or not value:
        return value
    keys = list(value)
    return value | {keys[0]: value[keys[-1]], keys[-1]: value[keys[0]]}


def altered(line: Line, path: str, alter: Alter) -> Iterator[Line]:
    """A line with another value at each place of a field, one place at a time; all outcomes have the same value."""
    for place in places_of(line, path):
        other = copy.deepcopy(line)
        for keys in same_places(line, place):
            holder = at(other, keys[:-1])
            if keys[-1] in holder:
                holder[keys[-1]] = alter(holder[keys[-1]])
        if other != line:
            yield other


def at(line: Line, keys: Sequence[Any]) -> dict[Any, Any]:
    """What is at a place of a line."""
    holder: Any = line
    for key in keys:
        holder = holder[key]
    found: dict[Any, Any] = holder
    return found


def places_of(line: Line, path: str) -> list[tuple[Any, ...]]:
    """Keys that lead to a field; several where some of them are indexes."""
    found: list[tuple[tuple[Any, ...], Any]] = [((), line)]
    for part in path.split("."):
        name, is_list = part.removesuffix("[]"), part.endswith("[]")
        found = [((*keys, name), value[name]) for keys, value in found if isinstance(value, dict) and name in value]
        if is_list:
            found = [((*keys, index), item) for keys, value in found for index, item in enumerate(value)]
    return [keys for keys, _ in found]


def same_places(line: Line, place: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """A place, and the same in the other outcomes of a line."""
    outer, *inner = place
    if outer != "result":
        return [place]
    others = [(name, *inner) for name in ("result_stable_sort",) if name in line]
    return [place, *others, *(("alternatives", index, *inner) for index in range(len(line.get("alternatives", ()))))]


def bared(line: Line, compared: Sequence[str]) -> Line:
    """A line with no answers but those that are compared, and those that guide."""
    fields: dict[str, set[str]] = {}
    for path in compared:
        holder, _, field = path.rpartition(".")
        fields.setdefault(holder, set()).add(field)
    for inner in [*fields]:
        holder, _, field = inner.rpartition(".")
        if holder in fields:
            fields[holder].add(field.removesuffix("[]"))
    outer = {path.partition(".")[0].removesuffix("[]") for path in compared}
    bare = copy.deepcopy({key: value for key, value in line.items() if key not in ANSWERS or key in outer})
    for holder, kept in fields.items():
        for place in places_of(line, holder) if holder else []:
            for keys in same_places(line, place):
                answer = at(bare, keys)
                for field in set(answer).difference(kept, GUIDES, ASKED):
                    del answer[field]
    return bare
