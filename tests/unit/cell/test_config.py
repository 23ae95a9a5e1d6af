"""Settings of a cell in one process: common sections, a section for each service, and the environment."""

from pathlib import Path

import pytest

from berth.cell.config import CellSettings, load_cell
from berth.cell.part import NAMES, STOPPED_TOGETHER, part_of
from berth.lab.nodesim.config import NodesimConfig
from berth.runtime.config import ConfigError
from berth.services.binder.config import BinderConfig
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.inventory.config import InventoryConfig
from tests.support.services import PACKAGES


def loaded(tmp_path: Path, text: str, **environ: str) -> CellSettings:
    path = tmp_path / "cell.toml"
    path.write_text(text)
    return load_cell(path, environ)


def refused(tmp_path: Path, text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, text, **environ)
    return str(error.value)


def test_every_service_but_the_scorer_is_a_part() -> None:
    assert PACKAGES.keys() - {"scorer"} == set(NAMES)
    for name in NAMES:
        assert part_of(name).config_type.__module__ == f"{PACKAGES[name]}.config"


def test_each_part_is_stopped_once() -> None:
    assert len(NAMES) == len(set(NAMES)) == sum(map(len, STOPPED_TOGETHER))


def test_without_a_cluster_the_services_that_decide_run(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '[bus]\nurl = "nats://h:1"\ncell = "c"\n')
    assert [one.name for one in settings.services] == ["api", "binder", "dispatcher"]
    for one in settings.services:
        assert (one.config.bus.url, one.config.bus.cell) == ("nats://h:1", "c")
        assert one.config.probes.port == 0


def test_with_a_section_the_simulated_cluster_runs(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '[nodesim]\ntopology_file = "x.yaml"\n')
    nodesim = settings.services[-1].config
    assert isinstance(nodesim, NodesimConfig)
    assert nodesim.topology_file == Path("x.yaml")
    assert nodesim.kube is None


def test_with_kubernetes_all_that_need_it_get_it(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path, '[kube]\nkubeconfig = "a"\n[inventory.gangs]\nvanished_s = 7\n[binder.kube]\nkubeconfig = "b"\n'
    )
    assert [one.name for one in settings.services] == ["api", "binder", "dispatcher", "inventory", "health", "summary"]
    configs = {one.name: one.config for one in settings.services}
    inventory, binder = configs["inventory"], configs["binder"]
    assert isinstance(inventory, InventoryConfig)
    assert isinstance(binder, BinderConfig)
    assert (inventory.kube.kubeconfig, inventory.gangs.vanished_s) == (Path("a"), 7)
    assert binder.kube is not None
    assert binder.kube.kubeconfig == Path("b"), "its own section takes the place of the common one"


def test_a_service_with_a_cluster_of_its_own_runs_without_a_common_one(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '[health.kube]\nkubeconfig = "a"\n')
    assert [one.name for one in settings.services] == ["api", "binder", "dispatcher", "health"]
    binder = settings.services[1].config
    assert isinstance(binder, BinderConfig)
    assert binder.kube is None


def test_an_environment_that_services_share_means_the_same(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "[dispatcher]\ntick_s = 3\n[dispatcher.decisions]\nqueue_policy = 'easy'\nreserve_chips = 8\n",
        BERTH_BUS__URL="nats://e:1",
        BERTH_DECISIONS__QUEUE_POLICY="fifo",
        BERTH_KUBE__CONTEXT="there",
        BERTH_PROBES__PORT="8080",
        BERTH_GRACE_S="9",
    )
    configs = {one.name: one.config for one in settings.services}
    dispatcher, inventory = configs["dispatcher"], configs["inventory"]
    assert isinstance(dispatcher, DispatcherConfig)
    assert isinstance(inventory, InventoryConfig)
    assert (dispatcher.decisions.queue_policy, dispatcher.decisions.reserve_chips, dispatcher.tick_s) == ("fifo", 8, 3)
    assert (dispatcher.bus.url, dispatcher.probes.port, dispatcher.grace_s) == ("nats://e:1", 0, 4.5)
    assert inventory.kube.context == "there"
    assert settings.cell.probes.port == 8080


def test_the_dispatcher_has_no_lease_and_no_scorers(tmp_path: Path) -> None:
    (config,) = [one.config for one in loaded(tmp_path, "").services if one.name == "dispatcher"]
    assert isinstance(config, DispatcherConfig)
    assert (config.lease, config.shards) == (False, 0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[dispatcher]\nshards = 2\n", "setting dispatcher.shards is 2: expected 0: a cell in one process has no scorers"),
        ("[dispatcher]\nlease = true\n", "setting dispatcher.lease is True: expected False: a cell in one process has no"),
        ("[dispatcher]\ntick_s = 0\n", "setting dispatcher.tick_s is 0: "),
        ("[dispatcher.decisions]\nqueue_policy = 'x'\n", "setting dispatcher.decisions.queue_policy is 'x': expected one of"),
        ("[binder]\nnotices = 1\n", "setting binder.notices is 1: unknown setting; known are"),
        ("[api.bus]\nurl = 'nats://h:1'\n", "setting api.bus: expected in the common part, as bus"),
        ("[nodesim]\n", "setting nodesim: Object missing required field `topology_file`"),
        ("[scorer]\nshards = 1\n", "setting scorer is {'shards': 1}: unknown setting; known are api, binder, bus,"),
        ("dispatcher = 3\n", "setting dispatcher is 3: Expected `object`"),
        ("[bus]\nreplicas = 2\n", "setting bus.replicas is 2: expected one of 1, 3"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_with_its_section(tmp_path: Path, text: str, error: str) -> None:
    assert refused(tmp_path, text).startswith(error)


def test_scorers_in_the_environment_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "", BERTH_SHARDS="2").startswith("setting dispatcher.shards is 2: expected 0")
