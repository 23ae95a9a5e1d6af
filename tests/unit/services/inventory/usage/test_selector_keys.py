"""Keys of selectors, and what is kept of the constraints that name them."""

from berth.schemas.constraints import Expression
from berth.schemas.pod_constraints import LabelSelector, PodConstraints, PodTerm
from berth.services.inventory.usage import selector_keys
from berth.services.inventory.usage.selector_keys import SelectorKeys


def constraints(key: str, number: int = 0) -> PodConstraints:
    selector = LabelSelector((Expression(key, "In", (str(number),)),))
    return PodConstraints(affinity=(PodTerm("zone", selector),))


def test_all_keys_that_somebody_names_are_kept() -> None:
    keys = SelectorKeys()
    for number in range(3 * selector_keys._SPARE_MAX):
        keys.note(f"pod-{number}", [constraints(f"key-{number % 3}", number), None])
    assert (keys.revision, keys.has_selectors) == (3, True)
    keys.note("another", [constraints("key-0", 7)])
    assert keys.revision == 3
    assert keys.selectable({"key-2": "b", "key-0": "a", "other": "c"}) == {"key-0": "a", "key-2": "b"}


def test_a_selector_that_comes_and_goes_publishes_once() -> None:
    keys = SelectorKeys()
    for _ in range(3):
        keys.note("pod", [constraints("key")])
        keys.note("pod", [])
    assert (keys.revision, keys.selectable({"key": "a"})) == (1, {"key": "a"})


def test_pods_with_other_keys_one_after_another_leave_little() -> None:
    keys = SelectorKeys()
    keys.note("stays", [constraints("mine")])
    for number in range(3 * selector_keys._SPARE_MAX):
        keys.note(f"pod-{number}", [constraints(f"key-{number}", number)])
        keys.note(f"pod-{number}", [])
    assert (len(keys._of), len(keys._uses)) == (1, 1)
    assert len(keys._keys) == selector_keys._SPARE_MAX + 1
    assert len(keys._spare) == selector_keys._SPARE_MAX
    assert keys.selectable({"mine": "a", "key-0": "b", f"key-{number}": "c"}) == {f"key-{number}": "c", "mine": "a"}


def test_a_key_stays_while_another_pod_names_it() -> None:
    keys = SelectorKeys()
    keys.note("first", [constraints("key")])
    keys.note("second", [constraints("key")])
    keys.note("first", [])
    for number in range(2 * selector_keys._SPARE_MAX):
        keys.note("third", [constraints(f"key-{number}")])
    assert keys.selectable({"key": "a", "key-0": "b"}) == {"key": "a"}
