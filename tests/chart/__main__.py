"""``python -m tests.chart`` writes ``k8s/chart`` from the manifests; with ``--pack FOLDER`` it packs the chart too."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chart.files import FOLDER, write
from tests.support.manifest_programs import Helm, path_of_program


def main() -> None:
    """Write the chart, and pack it where there is Helm."""
    parser = argparse.ArgumentParser(prog="python -m tests.chart", allow_abbrev=False)
    parser.add_argument("--pack", type=Path, metavar="FOLDER")
    folder = parser.parse_args().pack
    write()
    if folder is None:
        return
    if not path_of_program("helm").is_file():
        sys.exit(
            f"no {path_of_program('helm')}: the chart is written and not packed, which needs make helm-assets, with Go"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as home:
        print(Helm(Path(home))("package", FOLDER, "--destination", folder), end="")  # noqa: T201  # for people


if __name__ == "__main__":
    main()
