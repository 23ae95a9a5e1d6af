"""Service for programs: answers JSON requests, and publishes an event for every change of a job.

It follows facts and ledger as a reader, so it is beside the way of a decision. Several instances may run: each request
goes to one of them, and each event is stored once. ``docs/programs.md`` has the contract.
"""
