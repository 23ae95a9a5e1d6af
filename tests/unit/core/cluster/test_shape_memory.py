"""What is kept by shape is forgotten when it is too much, and not before."""

from berth.core.cluster.shape_memory import ShapeMemory
from berth.schemas.offers import Shape

KEPT_BYTES = 24_000_000


def large(number: int) -> Shape:
    """A shape of a megabyte."""
    return Shape("", "", 1, 1, selector=(("key", f"{number}-{'x' * 1_000_000}"),))


def test_all_is_forgotten_before_it_is_too_much_and_kept_until_then() -> None:
    first: dict[Shape, int] = {}
    second: dict[Shape, int] = {}
    memory = ShapeMemory(first, second)
    sizes = []
    for number in range(60):
        memory.count(large(number), 10)
        first[large(number)] = second[large(number)] = number
        sizes.append((len(first), len(second)))
    whole = KEPT_BYTES // 1_000_000 - 1
    assert max(sizes) == (whole, whole)
    assert sizes == [(1 + number % whole, 1 + number % whole) for number in range(60)]


def test_classes_of_nodes_count_too() -> None:
    kept: dict[Shape, int] = {}
    memory = ShapeMemory(kept)
    for number in range(10):
        shape = Shape("", "", number, 1)
        memory.count(shape, 1_000_000)
        kept[shape] = number
    assert len(kept) < 3
