"""Where the programs of Kubernetes are looked for. The server itself is tried in ``tests/kube``."""

from pathlib import Path

import pytest

from berth.lab.servers.kube_assets import kube_assets
from berth.runtime.errors import FatalError


def made(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_the_named_folder_is_taken_and_the_cache_is_not(tmp_path: Path) -> None:
    made(tmp_path / "berth" / "kube" / "v1.36.3", "etcd", "kube-apiserver")
    named = made(tmp_path / "named", "etcd", "kube-apiserver")
    assert kube_assets({"KUBEBUILDER_ASSETS": str(named), "XDG_CACHE_HOME": str(tmp_path)}) == named


def test_a_named_folder_that_lacks_programs_is_an_error_even_if_the_cache_has_them(tmp_path: Path) -> None:
    made(tmp_path / "berth" / "kube" / "v1.36.3", "etcd", "kube-apiserver")
    named = made(tmp_path / "named", "kube-apiserver")
    with pytest.raises(FatalError, match=r"KUBEBUILDER_ASSETS is .*named, which has no etcd$"):
        kube_assets({"KUBEBUILDER_ASSETS": str(named), "XDG_CACHE_HOME": str(tmp_path)})


def test_of_the_cache_the_highest_version_that_is_whole_is_taken(tmp_path: Path) -> None:
    cache = tmp_path / ".cache" / "berth" / "kube"
    made(cache / "v1.9.7", "etcd", "kube-apiserver")
    wanted = made(cache / "v1.20.2", "etcd", "kube-apiserver")
    made(cache / "v1.36.3", "etcd")
    made(cache / ".scratch.a", "etcd", "kube-apiserver")
    assert kube_assets({"HOME": str(tmp_path)}) == wanted


def test_an_empty_cache_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="run make kube-assets or set KUBEBUILDER_ASSETS"):
        kube_assets({"XDG_CACHE_HOME": str(tmp_path)})
