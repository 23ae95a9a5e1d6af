"""Extender for kube-scheduler: tells it the decisions of Berth, and decides nothing.

``docs/extender.md`` describes it.
"""
