"""Leaf switches from their ConfigMap: the last value that could be read holds."""

from typing import Final

from berth.formats.kube_objects import ConfigMap
from berth.formats.tor_config import CONFIG_MAP, NAMESPACE, TorConfig, TorConfigError, read_tor_config
from services.inventory.nodes import Nodes

PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
SELECTOR: Final = {"fieldSelector": f"metadata.name={CONFIG_MAP}"}


class Switches:
    """The ConfigMap as it was last read; ``reason`` says what is wrong with it now, empty when nothing is.

    Args:
        nodes: Nodes that stand below the switches.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.reason = ""
        self.uid = ""

    def take(self, found: ConfigMap | None) -> None:
        """Take the ConfigMap as it is now; None once it is gone, and with it all that was known of switches."""
        self.reason = ""
        if found is None:
            self._nodes.place(TorConfig())
            return
        self.uid = found.metadata.uid
        try:
            self._nodes.place(read_tor_config(found.data or {}))
        except TorConfigError as error:
            self.reason = f"{error}; {'the last value that could be read holds' if self._nodes.knows_switches else 'no switch is known'}"
