"""What a backup holds of each stream is said of each stream."""

from berth.runtime.backups.backup import backup_order
from berth.schemas.subjects import StreamName, Subjects


def test_each_stream_is_in_a_backup_or_is_made_again() -> None:
    specs = Subjects("cell").streams()
    assert {spec.name for spec in specs} == set(StreamName)
    held = {spec.name: spec.backup for spec in specs}
    left_out = {name for name, what in held.items() if what == "none"}
    assert left_out == {StreamName.SUMMARY, StreamName.LEASE, StreamName.EVENTS}
    assert [spec.name for spec in backup_order(specs)][:5] == ["SNAPSHOT", "LEDGER", "LATEST", "FACTS", "INTAKE"]
    assert {spec.name for spec in backup_order(specs)} == set(StreamName) - left_out


def test_only_streams_without_a_limit_for_each_subject_keep_their_sequences() -> None:
    for spec in Subjects("cell").streams():
        assert spec.backup != "all" or not spec.per_subject
        assert (spec.backup == "old") is (spec.mirror_of is not None)
