"""What health counts."""

from typing import Final

from berth.runtime.metrics import counter, gauge

FACTS: Final = counter("health_facts_total", "Health facts that were stored.")
NODES: Final = gauge("health_nodes", "Nodes by level.", ["level"])
SUSPECT: Final = gauge("health_suspect_nodes", "Nodes of which some newest report could not be read.")
TAKEN: Final = counter("health_reports_total", "Reports that were read, by source.", ["source"])
REFUSED: Final = counter("health_refused_total", "Reports, or chunks of them, that could not be read.", ["source"])
