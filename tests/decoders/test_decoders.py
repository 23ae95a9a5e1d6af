"""Every decoder reads its corpus, and answers a bounded number of damaged inputs within its contract."""

import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import structlog

from tests.decoders import __main__ as command
from tests.decoders import decoder as bounds
from tests.decoders import run as runs
from tests.decoders.decoder import CORPUS, Decoder, attempt, bounded_memory
from tests.decoders.entered import entered, public_functions
from tests.decoders.mutations import mutated
from tests.decoders.registry import ALL, BY_NAME
from tests.decoders.run import Failure, Tally, run, shrunk, stored
from tests.decoders.shrinking import shortest

INPUTS = 150
"""Damaged inputs of each decoder."""
SLOW = {
    "state-fact": 40,
    "anonymisation": 15,
    "yaml": 40,
    "manifest": 30,
    "queues": 30,
    "topology": 30,
    "cluster-text": 40,
    "kubeconfig": 40,
}
"""Fewer, where one takes many milliseconds."""
WRITERS = {
    "formats.ascend.fault_counters": {"job_key", "group_name", "nodes_text"},
    "formats.ascend.fault_marks": {"steering_labels", "steering_annotations", "pod_marks"},
    "formats.ascend.reset_config": {"name_of"},
    "formats.kubernetes.bound_pods": {"other_number"},
    "formats.kubernetes.events": {"events_path", "event_name", "new_event", "repeated"},
    "formats.kubernetes.paths": {"api_path", "is_path", "sub_path"},
    "formats.kubernetes.workloads.membership": {"digest"},
    "formats.kubernetes.workloads.registry": {"paths"},
    "formats.manifests.field_names": {"field_in"},
    "formats.queues.allocated": {"allocated", "allocated_patch"},
    "formats.manifests.writer": {"write_pod", "write_priority_class"},
    "formats.shown": {"shown", "shown_json"},
    "schemas.catalogue": {"portable"},
    "schemas.chain": {"encode_record", "stored_digest", "unsigned"},
    "schemas.facts": {"is_repeat"},
    "schemas.fault_facts": {"joined"},
    "schemas.gateway.endpoints": {"fields_of"},
    "schemas.gateway.openapi": {"openapi"},
    "schemas.intake": {"rank_of"},
    "schemas.message": {"json_decoder"},
    "schemas.placement": {"placement_of"},
    "schemas.units": {"rfc3339"},
    "schemas.programs.documents": {
        "asyncapi",
        "camel",
        "components_of",
        "field_texts",
        "shape_schema",
        "shapes",
        "tag_of",
    },
    "schemas.programs.events": {"event_id"},
    "schemas.programs.trace_ids": {"trace_id"},
    "schemas.refusal": {"reason_counts"},
    "schemas.rules": {"register", "stated"},
    "schemas.subjects": {"name_parts"},
}
"""Public functions that decode nothing: they write, or take what Berth made itself."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Objects that are skipped are logged, which is not what is tested."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_decoder_answers_or_raises_its_own_error(name: str) -> None:
    tally = run(BY_NAME[name], lambda count: count < SLOW.get(name, INPUTS))
    failures = {
        what: f"{len(one.data)} bytes {one.data[:200]!r}: {one.outcome.details!r}"
        for what, one in tally.failures.items()
    }
    assert failures == {}, f"make decoders DECODER={name} stores a short input of each"
    assert tally.inputs > SLOW.get(name, INPUTS)
    assert tally.read, "nothing was read, so only the first check of the decoder was tried"


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_the_corpus_still_applies(name: str) -> None:
    decoder = BY_NAME[name]
    corpus = decoder.corpus()
    assert any(key.startswith("ok-") for key in corpus), f"no input that is read in {CORPUS / name}"
    for key, data in corpus.items():
        outcome = attempt(decoder, data)
        assert not outcome.wrong, key
        assert outcome.is_read == key.startswith("ok-"), f"{key}: {outcome.error}"
        assert key.startswith(("ok-", "bad-")), key


def test_every_folder_of_the_corpus_has_a_decoder() -> None:
    assert sorted({path.name for path in CORPUS.iterdir()} - BY_NAME.keys()) == []
    assert len(BY_NAME) == len(ALL)


def test_every_public_decoder_is_entered_by_the_corpus() -> None:
    functions = public_functions()
    assert len(functions) > 150

    def read_all() -> None:
        for decoder in ALL:
            for data in decoder.corpus().values():
                attempt(decoder, data)

    codes = entered(read_all)
    writers = {f"{module}.{name}" for module, names in WRITERS.items() for name in names}
    assert sorted(writers - functions.keys()) == [], "listed as writers, but not there"
    missed = {name for name, code in functions.items() if code not in codes}
    assert sorted(missed - writers) == [], "decode functions that no decoder of the registry enters; add them"
    assert sorted(writers - missed) == [], "listed as writers, but decoders enter them"


def test_damage_follows_from_the_numbers() -> None:
    seeds = [b'{"a": [1, 2]}', b"x: 1\n"]
    made = [mutated(Random(7), seeds, form) for form in ("json", "text", "bytes", "msgpack") for _ in range(2)]  # noqa: S311 - of damage
    assert made[::2] == made[1::2]
    assert len({mutated(Random(number), seeds, "json") for number in range(50)}) > 25  # noqa: S311 - likewise


def broken(data: bytes) -> None:
    """A decoder with many errors.

    Raises:
        KeyError: Of a key that is not there.
        ValueError: Its documented error, too long, not UTF-8, without words, and as it should be.
    """
    match data[:1]:
        case b"k":
            raise KeyError("k")
        case b"m":
            bytearray(1 << 40)
        case b"l":
            while True:
                pass
        case b"t":
            raise ValueError("x" * 5_000)
        case b"u":
            raise ValueError("\ud800")
        case b"e":
            raise ValueError
        case b"v":
            raise ValueError("a value, expected another")
        case _:
            pass


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"k", "KeyError"),
        (b"m", "more than 64 MiB"),
        (b"l", "more than 0.2 s of CPU time"),
        (b"t", "ValueError of more than 4000 characters"),
        (b"u", "ValueError that cannot be written as UTF-8"),
        (b"e", "ValueError without words"),
        (b"v", ""),
        (b"", ""),
    ],
)
def test_what_a_decoder_must_not_do_is_noticed(data: bytes, wrong: str) -> None:
    decoder = Decoder("broken", broken, (ValueError,), cpu_s=0.2, memory_bytes=64 << 20)
    with bounded_memory(decoder.memory_bytes):
        assert attempt(decoder, data).wrong == wrong


def test_a_failing_input_is_made_short() -> None:
    decoder = Decoder("broken", lambda data: broken(data[data.find(b"k") :][:1]), (ValueError,))
    failure = Failure("broken", b"a long text with a k in it", attempt(decoder, b"k"))
    assert shrunk(decoder, failure).data == b"k"
    assert shortest(b"xxkyyykzz", lambda data: data.count(b"k") == 2) == b"kk"


def test_a_run_without_a_corpus_fails() -> None:
    with pytest.raises(ValueError, match="broken: no corpus"):
        run(Decoder("broken", broken, (ValueError,)), lambda _: False)


@pytest.fixture
def own_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus that may be written."""
    for module in (bounds, runs):
        monkeypatch.setattr(module, "CORPUS", tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "ok-a.txt").write_bytes(b"k")
    return tmp_path


def test_the_command_stores_a_failing_input_and_says_how_to_repeat_it(
    own_corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decoder = Decoder("broken", lambda data: broken(b"k" if b"k" in data[1:] else b"v"), (ValueError,))
    monkeypatch.setattr(command, "BY_NAME", {"broken": decoder})
    assert command.main(["--seconds", "0.2", "--decoder", "broken"]) == 1
    said = capsys.readouterr().out
    (file,) = own_corpus.glob("broken/bad-*")
    assert file.read_bytes()[1:] == b"k"
    assert f"python -m tests.decoders --decoder broken --input {file}" in said
    assert command.main(["--decoder", "broken", "--input", str(file)]) == 1
    assert "FAILS" in capsys.readouterr().out


def test_the_command_refuses_a_run_that_checks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--seconds", "1", "--decoder", "no-such"])
    assert "no-such" in capsys.readouterr().err
    assert command.report({"quantity": Tally()}, 1) == 1


def test_stored_inputs_have_names_of_their_own(own_corpus: Path) -> None:
    outcome = attempt(Decoder("broken", broken, ()), b"k")
    files = {stored(Failure("broken", data, outcome)).name for data in (b"k", b"kk", b"k")}
    assert len(files) == 2
    assert own_corpus.is_dir()
