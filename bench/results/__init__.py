"""Results on real traces: ``python -m bench.results`` writes ``docs/results``."""
