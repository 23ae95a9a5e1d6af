"""One Hypothesis profile: the same examples on every machine, and no deadline where cores are shared."""

from hypothesis import settings

settings.register_profile("berth", deadline=None, derandomize=True, database=None, max_examples=100)
settings.load_profile("berth")
