"""Commands that simulate: ``berth simulate`` and ``berth what-if``, with their reports and pictures."""
