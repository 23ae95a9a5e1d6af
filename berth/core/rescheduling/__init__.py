"""Placement of lost pods of a gang while its other pods keep their places.

The planners are complete and are compared with reference vectors. No service calls them yet.
"""
