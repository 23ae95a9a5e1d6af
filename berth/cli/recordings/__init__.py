"""Commands about recordings: record, log, replay."""
