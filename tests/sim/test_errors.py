"""What an error is called in the figures of a run."""

from berth.runtime.errors import FatalError
from tests.sim.errors import kind_of


def test_errors_that_differ_in_numbers_are_of_one_kind() -> None:
    kinds = {kind_of(ExceptionGroup("tasks", [FatalError(f"score.{shard} ended at {shard + 7}")])) for shard in (0, 12)}
    assert kinds == {"FatalError: score.N ended at N"}


def test_a_long_text_ends_at_a_word() -> None:
    assert kind_of(ValueError("sequences " * 20)) == "ValueError: " + "sequences " * 9 + "…"
