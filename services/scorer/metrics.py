"""What a scorer counts."""

from typing import Final

from berth.runtime.metrics import counter, gauge, seconds

REQUESTS: Final = counter(
    "scorer_requests_total", "Score requests; ready says whether the sequences asked were reached.", ["ready"]
)
TOOK: Final = seconds("scorer_request_seconds", "How long one score request took, the wait for its sequences included.")
FACTS: Final = gauge("scorer_facts_sequence", "Sequence of the last fact that was applied.")
LEDGER: Final = gauge("scorer_ledger_sequence", "Sequence of the last ledger record that was applied.")
NODES: Final = gauge("scorer_nodes", "Nodes of this shard.")
