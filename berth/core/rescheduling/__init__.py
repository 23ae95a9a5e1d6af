"""Placement of lost pods of a gang while its other pods keep their places.

The planners are compared with reference vectors. ``berth.core.placement.replacements`` calls them in a round.
"""
