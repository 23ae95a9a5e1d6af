"""Benches: the cost of Berth, next to the limit that a bare program reaches in the same run.

``python -m bench NAME [--json]``; all benches have one output format: ``{"bench", "machine", "rows": [{"case",
"metric", "unit", "value", "limit", "ratio", "target", "ok", "can_be_zero"}]}``.
"""
