"""A service whose metrics count nothing: ``python -m bench.limits.without_metrics MODULE ARGUMENTS``."""

import runpy
import sys
from typing import Any, TypeVar

from prometheus_client import Counter, Gauge, Histogram

_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)


def _nothing(*_: Any, **__: Any) -> None:  # noqa: ANN401  # whatever is given
    """Count nothing."""


def _same(metric: _Metric, *_: Any, **__: Any) -> _Metric:  # noqa: ANN401  # as above
    """The metric itself, whatever the labels are."""
    return metric


def main() -> None:
    """Run a module as the main program, after all metrics were made to count nothing."""
    for kind, verbs in ((Counter, ["inc"]), (Gauge, ["inc", "dec", "set"]), (Histogram, ["observe"])):
        setattr(kind, "labels", _same)  # noqa: B010  # not a member that mypy lets one replace
        for verb in verbs:
            setattr(kind, verb, _nothing)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
