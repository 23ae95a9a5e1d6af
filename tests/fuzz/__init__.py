"""Random histories of a whole decider that combine all features, and what must hold after each record of them.

A history is plain data: a way (nodes, settings, what may happen) and a list of steps. Steps are total: one that makes
no sense in the state at hand does nothing, so any part of a history is a history. ``world`` lives through it; the
checks stand apart: ``accounts`` (who owns what, counted anew), ``shard_check`` (offers of shards), ``likeness`` (a
state beside one that was loaded from its snapshot), ``sleepers`` (does anybody sleep who could be placed).
"""
