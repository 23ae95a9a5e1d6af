"""A kube-scheduler with the configuration of the page about the extender, but for names, addresses and files."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from berth.lab.servers.kube_assets import SCHEDULER, kube_assets, program_in
from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.place import die_with
from tests.support.waiting import until

_PAGE: Final = Path(__file__).parents[2] / "docs" / "extender.md"
_DEADLINE_S: Final = 30.0


def documented_config() -> dict[str, Any]:
    """The configuration of the page."""
    (text,) = re.findall(
        r"^```yaml\n(apiVersion: kubescheduler.*?)^```$", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    found: dict[str, Any] = yaml.safe_load(text)
    return found


class ExtendedScheduler:
    """An async context manager.

    Args:
        server: The API server, which runs.
        folder: Folder for its files; created if missing.
        url: Of the extender.
        ca: Authority that has signed the certificate of the extender.
        certificate: Its own certificate and key.
        names: ``schedulerName`` of the pods that it schedules.
    """

    def __init__(
        self,
        server: KubeServer,
        folder: Path,
        *,
        url: str,
        ca: Path,
        certificate: tuple[Path, Path],
        names: Sequence[str],
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = documented_config()
        config["leaderElection"] = {"leaderElect": False}
        config["clientConnection"] = {"kubeconfig": str(server.write_kubeconfig(folder / "kubeconfig"))}
        config["profiles"] = [{"schedulerName": name} for name in names]
        config["podInitialBackoffSeconds"], config["podMaxBackoffSeconds"] = 1, 1  # tests wait for less than people
        (extender,) = config["extenders"]
        files = [str(path) for path in (ca, *certificate)]
        extender |= {"urlPrefix": url, "tlsConfig": dict(zip(("caFile", "certFile", "keyFile"), files, strict=True))}
        self._config = folder / "scheduler.yaml"
        self._config.write_text(yaml.safe_dump(config), "utf-8")
        self._log = folder / "scheduler.log"
        self._child: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        self._child = self._spawn()
        return self

    def _spawn(self) -> "subprocess.Popen[bytes]":
        program = program_in(kube_assets(), SCHEDULER)
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # a program of the assets and generated arguments
                [program, f"--config={self._config}", "--secure-port=0"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # two system calls, no locks
            )

    async def __aexit__(self, *_: object) -> None:
        child = self._child
        if child is not None:
            child.kill()
            await until(lambda: child.poll() is not None, deadline_s=_DEADLINE_S, what="kube-scheduler has ended")

    def log(self) -> str:
        """End of its log, for messages of failed tests."""
        return self._log.read_text("utf-8", errors="replace")[-4000:]
