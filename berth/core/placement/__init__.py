"""Placement of gangs on a state: filter and score, offers, switch and SuperPoD placement, projected state."""
