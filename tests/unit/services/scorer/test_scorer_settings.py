"""A scorer knows its shard by a number, or by a name that ends in one."""

import re
from pathlib import Path

import pytest

from berth.runtime.config import ConfigError, load
from berth.services.scorer.config import ScorerConfig


def number(environ: dict[str, str]) -> int:
    return load(ScorerConfig, None, environ).number()


def test_the_number_is_the_shard() -> None:
    assert load(ScorerConfig, None, {}).number() == 0
    assert number({"BERTH_SHARD": "2", "BERTH_SHARDS": "3"}) == 2


@pytest.mark.parametrize(
    ("name", "shard"), [("scorer-0", 0), ("scorer-11", 11), ("a-3-scorer-007", 7), ("-4", 4), ("Zelle-ö-1", 1)]
)
def test_a_name_that_ends_in_a_number_goes_before_it(name: str, shard: int) -> None:
    assert number({"BERTH_SHARD": "1", "BERTH_SHARDS": "12", "BERTH_SHARD_NAME": name}) == shard


def test_the_name_may_stand_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('shards = 2\nshard_name = "scorer-1"\n')
    assert load(ScorerConfig, path, {}).number() == 1


@pytest.mark.parametrize("name", ["scorer", "scorer-", "scorer3", "scorer-3-a", "scorer-٣", "scorer-123456", "3"])
def test_a_name_without_a_number_is_refused(name: str) -> None:
    said = f"setting shard_name is {name!r}: a name that ends in a hyphen and the number of the shard, such as scorer-3"
    with pytest.raises(ConfigError, match=re.escape(said)):
        number({"BERTH_SHARDS": "256", "BERTH_SHARD_NAME": name})


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"BERTH_SHARD": "2"}, "setting shard is 2: below shards, which is 2"),
        ({"BERTH_SHARD_NAME": "scorer-2"}, "setting shard_name is 'scorer-2': below shards, which is 2"),
    ],
)
def test_a_number_that_is_no_shard_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        number({"BERTH_SHARDS": "2", **environ})
