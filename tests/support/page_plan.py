"""Which commands of the pages a test runs, and why the others are not run there."""

from pathlib import Path
from typing import Final

from tests.support.page_commands import ROOT, Block, Shown, blocks_of

_MAKE: Final = "a target of the Makefile, which sets up an environment of its own or runs all tests; .ci/run runs them"
_KUBECTL: Final = "needs a cluster with kubelets; make test-kube applies the same manifests to an API server"
_HELM: Final = (
    "needs a cluster to install into; tests/contract/test_chart.py and make test-kube render and apply the chart"
)
_IMAGE: Final = "needs a container runtime; tests/contract/test_wheel.py builds what the Dockerfile copies"
_OTHER_CELL: Final = "an example of another cell, which runs longer or in which something is broken"
_PRINTED: Final = "the output is compared in "

NOT_RUN: Final[dict[str, dict[str, str]]] = {
    "README.md": {"make": _MAKE},
    "CONTRIBUTING.md": {"make": _MAKE},
    "docs/tutorial.md": {"make setup": _MAKE},
    "docs/cli.md": {
        "berth completion zsh": "names a variable of zsh; tests/unit/cli/test_completion.py makes the script",
    },
    "docs/cli/jobs.md": {
        "berth jobs": _OTHER_CELL + "; tests/bus/test_job_lists.py lists such jobs",
        "berth explain": _OTHER_CELL,
        "berth ask": _OTHER_CELL + "; docs/howto/expected-start.md asks",
    },
    "docs/cli/cell.md": {
        "berth faults": _OTHER_CELL + "; tests/unit/cli/cluster/test_fault_list.py groups such faults",
    },
    "docs/cli/maintenance.md": {"berth fsck": _OTHER_CELL + "; tests/e2e/test_fsck.py breaks one"},
    "docs/gateway.md": {
        "": "needs the token that the first command prints; tests/e2e/test_gateway.py sends such requests"
    },
    "docs/deploying.md": {"kubectl": _KUBECTL},
    "docs/kubernetes/health.md": {"nats": "needs a cell with a real node; tests/e2e/test_trust.py sends such reports"},
    "docs/kubernetes/nodesim.md": {
        "make": _MAKE,
        "python -m berth.lab.nodesim": "needs an API server; make test-kube starts it there",
    },
    "docs/kubernetes/summary.md": {"kubectl": _KUBECTL},
    "docs/operate/monitoring.md": {"kubectl": _KUBECTL},
    "docs/programs.md": {
        "nats request berth.default.api.jobs": _OTHER_CELL
        + "; tests/unit/services/api/test_job_list.py lists such jobs",
        "nats request berth.default.api.events": _OTHER_CELL + "; tests/e2e/test_programs.py reads events",
    },
    "docs/queues.md": {
        "kubectl": _KUBECTL,
        "berth queues": "needs the file of the lines before it; tests/unit/cli/queues/test_queue_commands.py reads such files",
    },
    "docs/replay.md": {
        "kubectl": _KUBECTL,
        "BERTH_BUS__USER": "needs the cluster of the line before it",
        "berth record morning.rec": _OTHER_CELL + "; tests/bus/test_recording.py has times and lost history",
        "berth log demo.rec": "needs berth demo --record, which tests/e2e/test_cli_demo.py runs",
        "berth explain ml/train": _OTHER_CELL,
        "berth replay changed.rec": _OTHER_CELL + "; tests/unit/cli/recordings/test_replay.py has a difference",
        "pytest": "tests/contract/test_wheel.py runs the plug-in with a recording",
    },
    "docs/simulate.md": {"berth simulate --trace kalos": "the trace is not in the tree; make results simulates it"},
    "docs/simulate-failures.md": {
        "berth simulate --trace kalos": "the trace is not in the tree; make results simulates it"
    },
    "docs/logical-superpods.md": {"berth": _PRINTED + "tests/unit/core/explain/test_superpod_text.py"},
    "docs/leaf-switches.md": {"berth": _PRINTED + "tests/unit/core/explain/test_switch_text.py"},
    "docs/testing.md": {
        "make": _MAKE,
        "python -m tests.sim": "runs a seed of a simulation that failed; tests/sim/test_sim.py runs others",
    },
    "docs/upgrading.md": {"kubectl": _KUBECTL},
    "docs/howto/alert.md": {"kubectl": _KUBECTL},
    "docs/howto/production.md": {
        "kubectl": _KUBECTL,
        "set --": _KUBECTL,
        "for user": _KUBECTL,
        "openssl": "tests/support/certificates.py runs these commands with the names of this page",
        "export BERTH_BUS__": _KUBECTL,
        "berth status": "needs the cluster of the lines before it",
    },
    "docs/howto/install.md": {"make": _IMAGE, "tag=": _IMAGE, "kubectl": _KUBECTL, "helm": _HELM},
    "docs/howto/install-with-helm.md": {
        "kubectl": _KUBECTL,
        "helm": _HELM,
        "berth": "needs the cluster of the lines before it",
    },
    "docs/howto/open-the-gateway.md": {
        "kubectl": _KUBECTL,
        "berth token": "is for the cluster of the lines after it; tests/unit/cli/test_token.py makes tokens",
    },
    "docs/howto/share-a-cluster.md": {
        "kubectl": _KUBECTL,
        "berth queues check volcano.yaml": "needs the file of the line before it",
        "berth queues show volcano.yaml": "needs the file of the lines before it",
    },
    "docs/howto/switch-over.md": {"kubectl": _KUBECTL, "berth": "needs the cluster of the lines before it"},
}
"""For each page: the beginning of commands that are not run, with the reason."""

BEFORE: Final[dict[str, tuple[str, ...]]] = {
    "docs/programs.md": ("berth up",),
    # What is recorded has two changes at least: the two jobs may be placed in one round.
    "docs/replay.md": ("berth up", "berth submit docs/examples/job.yaml --wait", "berth cancel train"),
}
"""What pages expect that do not start a cell themselves."""


def pages() -> list[Path]:
    """Pages that a reader may follow."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return found + sorted(path for path in (ROOT / "docs").rglob("*.md") if "node_modules" not in path.parts)


def name_of(page: Path) -> str:
    """Path of a page in the tree."""
    return page.relative_to(ROOT).as_posix()


def reason_against(page: str, command: str) -> str:
    """Why a command of a page is not run; empty if it is run."""
    return next((why for start, why in NOT_RUN.get(page, {}).items() if command.startswith(start)), "")


def to_run(page: Path) -> list[tuple[Block, Shown]]:
    """Commands of a page that are run, in order."""
    return [
        (block, shown)
        for block in blocks_of(page.read_text("utf-8"))
        for shown in block.shown
        if not (shown.command and reason_against(name_of(page), shown.command))
    ]


def run_pages() -> list[Path]:
    """Pages of which at least one command is run."""
    return [page for page in pages() if any(shown.command for _, shown in to_run(page))]
