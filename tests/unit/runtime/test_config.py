"""Settings: the order of their sources, and errors that name the field, the value and what is right."""

from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from berth.runtime.config import (
    BusConfig,
    ConfigError,
    ServiceConfig,
    bus_url_from_environment,
    environment_of_child,
    load,
)
from berth.runtime.errors import FatalError
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.process import report
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.inventory.config import InventoryConfig


class Area(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tries_max: Annotated[int, Meta(ge=1, le=10)] = 3
    wait_s: float = 1.5
    eager: bool = False
    names: list[str] = []
    secret_file: Path | None = None
    deep: BusConfig = BusConfig()


class Config(ServiceConfig, frozen=True, kw_only=True):
    shards: Annotated[int, Meta(ge=0, le=64)] = 0
    area: Area = Area()
    maybe: Area | None = None


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "service.toml"
    path.write_text(text)
    return path


def test_without_a_file_and_an_environment_the_defaults_hold() -> None:
    config = load(Config, None, {})
    assert config == Config()
    assert config.bus.url == "nats://127.0.0.1:4222"


def test_the_file_wins_over_defaults_and_the_environment_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'shards = 2\n[bus]\nurl = "nats://file:4222"\ncell = "a"\n[area]\nwait_s = 2\n')
    config = load(Config, path, {"BERTH_BUS__URL": "nats://env:4222"})
    assert (config.bus.url, config.bus.cell, config.shards, config.area.wait_s) == ("nats://env:4222", "a", 2, 2.0)


def test_the_environment_is_read_by_the_type_of_the_field() -> None:
    environ = {
        "BERTH_SHARDS": "4",
        "BERTH_AREA__TRIES_MAX": "5",
        "BERTH_AREA__WAIT_S": "0.25",
        "BERTH_AREA__EAGER": "true",
        "BERTH_AREA__NAMES": '["a", "b"]',
        "BERTH_AREA__DEEP__REPLICAS": "3",
        "BERTH_MAYBE__TRIES_MAX": "7",
        "BERTH_BUS__CELL": "12",
        "BERTH_AREA__SECRET_FILE": "/run/secrets/nats",
    }
    config = load(Config, None, environ)
    assert config.shards == 4
    assert config.area == Area(
        tries_max=5,
        wait_s=0.25,
        eager=True,
        names=["a", "b"],
        secret_file=Path("/run/secrets/nats"),
        deep=BusConfig(replicas=3),
    )
    assert config.maybe == Area(tries_max=7)
    assert config.bus.cell == "12"


def test_a_file_is_not_read_leniently(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Config, written(tmp_path, 'shards = "4"\n'), {})
    assert (caught.value.field, caught.value.value) == ("shards", "'4'")


def test_variables_of_other_processes_are_left_alone() -> None:
    environ = {"BERTH_DISPATCHER__SHARDS": "x", "BERTH_VECTORS": "x", "OTHER_BUS__URL": "x", "PATH": "/bin"}
    assert load(Config, None, environ) == Config()


@pytest.mark.parametrize(
    ("environ", "field", "value", "expected"),
    [
        ({"BERTH_BUS__REPLICAS": "2"}, "bus.replicas", "'2'", "one of 1, 3"),
        ({"BERTH_BUS__URLL": "x"}, "bus.urll", "'x'", "known are cell, connect_timeout_s,"),
        ({"BERTH_AREA__TRIES_MAX": "11"}, "area.tries_max", "'11'", "<= 10"),
        ({"BERTH_AREA__TRIES_MAX": "many"}, "area.tries_max", "'many'", "Expected `int`"),
        ({"BERTH_AREA__TRIES_MAX": ""}, "area.tries_max", "''", "Expected `int`"),
        ({"BERTH_AREA__EAGER": "maybe"}, "area.eager", "'maybe'", "true or false"),
        ({"BERTH_AREA__NAMES": "[1"}, "area.names", "'[1'", "truncated"),
        ({"BERTH_AREA__NAMES": "[1]"}, "area.names", "'[1]'", "Expected `str`"),
        ({"BERTH_SHARDS__MORE": "1"}, "shards.more", "", "shards is not a section"),
        ({"BERTH_BUS__": "1"}, "bus.", "'1'", "known are"),
        ({"BERTH_BUS": "nats://x"}, "bus", "'nats://x'", "Expected `object`"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value_and_what_is_right(
    environ: dict[str, str], field: str, value: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Config, None, environ)
    assert (caught.value.field, caught.value.value) == (field, value)
    assert expected in caught.value.expected
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("text", "field", "value", "expected"),
    [
        ("[bus]\nreplicas = 2", "bus.replicas", "2", "one of 1, 3"),
        ("[bus]\nurll = 1", "bus.urll", "1", "known are cell,"),
        ("shrads = 1", "shrads", "1", "known are area, bus, grace_s,"),
        ("bus = 5", "bus", "5", "Expected `object`"),
        ("grace_s = 0", "grace_s", "0", "> 0"),
        ("[area]\nnames = [1]", "area.names", "[1]", "Expected `str`"),
        ('[bus]\nurl = "http://x"', "bus.url", "'http://x'", "regex"),
        ('[log]\nlevel = "loud"', "log.level", "'loud'", "debug, info, warning, error"),
        ("[area]\nsecret_file = 3", "area.secret_file", "3", "Expected"),
    ],
)
def test_a_wrong_field_of_the_file_is_named_with_its_value_and_what_is_right(
    tmp_path: Path, text: str, field: str, value: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Config, written(tmp_path, text), {})
    assert (caught.value.field, caught.value.value) == (field, value)
    assert expected in caught.value.expected


@pytest.mark.parametrize(
    ("text", "environ", "field"),
    [
        ("[kube]\nwatch_s = 60", {}, "kube.watch_s"),
        ("mirror_wait_s = 60", {}, "mirror_wait_s"),
        ("", {"BERTH_KUBE__WATCH_S": "60"}, "kube.watch_s"),
        ("", {"BERTH_MIRROR_WAIT_S": "60"}, "mirror_wait_s"),
    ],
)
def test_a_former_setting_is_refused_with_its_name_and_the_constant(
    tmp_path: Path, text: str, environ: dict[str, str], field: str
) -> None:
    constant = {"kube.watch_s": "420 s", "mirror_wait_s": "30 s"}[field]
    value = "'60'" if environ else "60"
    with pytest.raises(ConfigError) as caught:
        load(InventoryConfig, written(tmp_path, text), environ)
    assert str(caught.value) == f"setting {field} is {value}: it is a constant now, {constant}: leave it out"


@pytest.mark.parametrize(
    ("text", "environ", "field"),
    [
        ("[faults]\nhold_places_ms = 0", {}, "faults"),
        ("", {"BERTH_FAULTS__HOLD_PLACES_MS": "0"}, "faults.hold_places_ms"),
    ],
)
def test_a_section_that_has_moved_is_refused_with_the_one_that_has_its_settings(
    tmp_path: Path, text: str, environ: dict[str, str], field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(DispatcherConfig, written(tmp_path, text), environ)
    assert (caught.value.field, caught.value.expected) == (field, "its settings are in section decisions now")


def test_a_missing_field_is_named() -> None:
    class Needs(msgspec.Struct, forbid_unknown_fields=True):
        shard: int

    with pytest.raises(ConfigError, match="missing required field `shard`"):
        load(Needs, None, {})


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        load(Config, None, {"BERTH_BUS__URL": "nats://me:secret@host:4222"})
    assert "secret" not in str(caught.value)


def test_a_section_given_as_a_value_and_as_variables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Config, written(tmp_path, "bus = 5"), {"BERTH_BUS__CELL": "a"})
    assert caught.value.field == "bus.cell"


@pytest.mark.parametrize(("data", "reason"), [(b"a = ", "is not TOML"), (b"\xff", "is not UTF-8")])
def test_a_broken_file_is_named(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=rf"broken\.toml {reason}"):
        load(Config, path, {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml: No such file"):
        load(Config, tmp_path / "none.toml", {})


def test_a_bad_setting_ends_the_process_with_code_2() -> None:
    assert issubclass(ConfigError, FatalError)
    assert report(ConfigError(field="a", expected="b"), DEFAULT_LOG) == 2


def test_the_address_alone_can_be_read_from_the_environment() -> None:
    assert bus_url_from_environment({"BERTH_BUS__URL": "nats://x:1"}) == "nats://x:1"
    assert bus_url_from_environment({"BERTH_BUS__URL": "nats://x:1", "BERTH_NATS_URL": "nats://y:2"}) == "nats://y:2"
    assert bus_url_from_environment({"BERTH_BUS__URL": "nats://x:1", "BERTH_NATS_URL": ""}) == "nats://x:1"
    assert bus_url_from_environment({}) is None


def test_a_child_gets_the_environment_without_what_its_parent_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_BUS__URL", "nats://x:1")
    monkeypatch.setenv("BERTH_SHARDS", "3")
    monkeypatch.setenv("BERTH_LOG__LEVEL", "debug")
    child = environment_of_child(without=["BERTH_BUS__*", "BERTH_SHARDS"])
    assert {name: value for name, value in child.items() if name.startswith("BERTH_")} == {"BERTH_LOG__LEVEL": "debug"}


def test_a_variable_that_is_not_utf8_is_refused_with_its_field() -> None:
    for variable, field in (("BERTH_BUS__CELL", "bus.cell"), ("BERTH_AREA__NAMES", "area.names")):
        with pytest.raises(ConfigError) as caught:
            load(Config, None, {variable: '["\udcff"]'})
        assert caught.value.field == field
        assert "\\udcff" in str(caught.value)
        assert "expected text without half a surrogate pair" in str(caught.value)
