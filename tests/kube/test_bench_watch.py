"""The bench of watches runs, on a small cluster."""

from bench.watch import measure


async def test_both_programs_see_everything() -> None:
    rows = await measure(nodes=10, pods=40, rounds=2)
    found = {row.metric: row for row in rows}
    assert sorted(found) == ["against a bare download", "memory at most", "memory kept", "start to synced"]
    assert all(row.value > 0 for row in rows)
    assert found["memory kept"].ok
