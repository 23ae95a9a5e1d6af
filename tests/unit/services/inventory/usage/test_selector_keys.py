"""Keys of selectors, and what is kept of the constraints that name them."""

from berth.schemas.constraints import Expression
from berth.schemas.pod_constraints import LabelSelector, PodConstraints, PodTerm
from berth.services.inventory.usage import selector_keys
from berth.services.inventory.usage.selector_keys import SelectorKeys


def constraints(key: str, number: int) -> PodConstraints:
    selector = LabelSelector((Expression(key, "In", (str(number),)),))
    return PodConstraints(affinity=(PodTerm("zone", selector),))


def test_only_some_constraints_are_kept_and_all_keys() -> None:
    keys = SelectorKeys()
    count = 2 * selector_keys._KNOWN_MAX
    for number in range(count):
        keys.note(constraints(f"key-{number % 3}", number))
    assert len(keys._known) <= selector_keys._KNOWN_MAX
    assert (keys.revision, keys.has_selectors) == (3, True)
    keys.note(constraints("key-0", 0))
    assert keys.revision == 3
    assert keys.selectable({"key-2": "b", "key-0": "a", "other": "c"}) == {"key-0": "a", "key-2": "b"}
