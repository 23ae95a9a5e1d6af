"""JSON requests, replies and events for programs in any language; ``docs/programs.md`` describes them.

They evolve like JSON APIs: fields are added, readers ignore fields that they do not know, and enumerations are open.
"""
