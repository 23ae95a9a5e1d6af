"""Damaged files of NATS are harmless or are named; ``tests/chaos/damaged_store.py`` tries many more."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.chaos.damage import damage
from tests.chaos.damaged_store import make_store, trial

SEEDS = 12


@pytest.mark.timeout(120)
async def test_damaged_files_never_make_a_dispatcher_forget_a_placement(tmp_path: Path) -> None:
    known = await make_store(tmp_path)
    found = {seed: await trial(tmp_path, seed, known) for seed in range(SEEDS)}
    assert {seed: one for seed, one in found.items() if one[2].verdict == "silent"} == {}
    verdicts = Counter(outcome.verdict for _, _, outcome in found.values())
    assert verdicts["harmless"], "nothing but total losses were tried"
    assert verdicts["named"], "no damage that matters was tried"
    assert len({moment for moment, _, _ in found.values()}) == 3


def test_damage_changes_exactly_one_file(tmp_path: Path) -> None:
    files = [tmp_path / f"jetstream/$G/streams/LEDGER_c/{name}" for name in ("meta.inf", "msgs/1.blk", "msgs/2.blk")]
    for seed in range(60):
        for path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(range(256)))
        done = damage(Random(seed), tmp_path)  # noqa: S311  # a test's choices
        changed = [path for path in files if not path.exists() or path.read_bytes() != bytes(range(256))]
        assert len(changed) <= 1, done
        if changed:
            assert str(changed[0]).endswith(done.file)
        else:
            assert "zeroes" in done.what, done
            assert done.what
