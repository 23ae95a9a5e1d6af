"""All services of a cell in one process, on one event loop, for small cells: ``python -m berth.cell --config FILE``.

The same services as in processes of their own; see decision one-process.
"""
