"""The bench of memory runs, on a small cell for a short time."""

import asyncio

import pytest

from bench import one


@pytest.mark.timeout(120)
async def test_it_measures_both_modes_with_jobs() -> None:
    report = await asyncio.to_thread(one.run, one.SMALL)
    values = {(line.case, line.metric): line for line in report.rows}
    case = "10 nodes, 2 jobs of 4 pods, one process"
    assert values[case, "PSS, highest"].value >= values[case, "PSS before the jobs"].value > 40
    assert values[case, "one job: request to status"].value > 0
    ratio = values["cluster of the demo, idle, one process", "PSS"].ratio
    assert ratio is not None
    assert ratio < 1, "one process needs less memory than seven"
