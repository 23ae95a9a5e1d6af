"""Checks that begin again when the cell removes old messages meanwhile."""

import pytest

from berth.runtime.fsck.streams import ChangedError, checked_again


class Check:
    """A check that the cell disturbs so often."""

    def __init__(self, disturbed: int) -> None:
        self.left = disturbed
        self.tries = 0

    async def run(self) -> str:
        self.tries += 1
        if self.left:
            self.left -= 1
            raise ChangedError("INTAKE: too old")
        return "clean"


@pytest.mark.parametrize("disturbed", [0, 1, 4])
async def test_a_check_that_is_disturbed_up_to_four_times_has_a_result(disturbed: int) -> None:
    check = Check(disturbed)
    assert await checked_again(check.run) == "clean"
    assert check.tries == disturbed + 1


async def test_a_check_that_is_disturbed_each_time_says_so() -> None:
    check = Check(5)
    with pytest.raises(ChangedError, match="INTAKE: too old"):
        await checked_again(check.run)
    assert check.tries == 5
