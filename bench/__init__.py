"""Benches: what Berth costs, each beside a limit that a bare program reaches in the same run.

``python -m bench NAME [--json]``; one form for all: ``{"bench", "machine", "rows": [{"case", "metric", "unit", "value",
"limit", "ratio", "target", "ok"}]}``.
"""
