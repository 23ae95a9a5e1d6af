"""Where the services lie: each in a folder of ``services``, the simulated cluster in the lab."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
OF_LAB: Final = {"nodesim": "berth.lab.nodesim"}
PACKAGES: Final = {
    path.parent.name: f"berth.services.{path.parent.name}" for path in (ROOT / "services").glob("*/app.py")
}
PACKAGES.update(OF_LAB)
"""Package of each service."""
FOLDERS: Final = {name: (ROOT / package.replace(".", "/")).resolve() for name, package in PACKAGES.items()}
SERVICES: Final = sorted(PACKAGES)
