"""Examples validate and round-trip; a wrong version, field or value is one clear error."""

import json

import msgspec
import pytest

from gossamer.records import envelope, registry
from gossamer.records.assignment import Assignment
from gossamer.records.benchmark import Benchmark
from gossamer.records.capture import Capture
from gossamer.records.envelope import RecordError
from gossamer.records.request_log import RequestLog

KINDS = sorted(registry.KINDS)


def trees(kind: str) -> list[dict]:
    raw = registry.example(kind)
    return [json.loads(line) for line in raw.splitlines()] if kind in registry.LOGS else [json.loads(raw)]


@pytest.mark.parametrize("kind", KINDS)
def test_example_validates_and_round_trips(kind):
    record_type = registry.KINDS[kind]
    for tree in trees(kind):
        record = envelope.convert(tree, record_type)
        again = envelope.decode(envelope.encode(record), record_type)
        assert again == record
        # Nothing of the example is lost on the way: what comes out holds all that went in.
        out = json.loads(envelope.encode(record))
        assert {key: out.get(key) for key in tree} == tree


@pytest.mark.parametrize("kind", KINDS)
def test_schema_tag_names_kind_and_version(kind):
    assert envelope.schema_of(registry.KINDS[kind]) == f"gossamer.{kind}/1"
    assert (
        next(
            iter(
                json.loads(
                    registry.example(kind).splitlines()[0]
                    if kind in registry.LOGS
                    else registry.example(kind)
                )
            )
        )
        == "schema"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_other_version_is_refused_with_both_versions(kind):
    tree = trees(kind)[0] | {"schema": f"gossamer.{kind}/2"}
    with pytest.raises(RecordError, match=rf"gossamer\.{kind}/2.*another version.*gossamer\.{kind}/1"):
        envelope.convert(tree, registry.KINDS[kind], where="x.json")


@pytest.mark.parametrize("kind", KINDS)
def test_other_kind_and_no_schema_are_refused(kind):
    tree = trees(kind)[0]
    with pytest.raises(RecordError, match=r"schema is 'gossamer\.other/1', expected"):
        envelope.convert(tree | {"schema": "gossamer.other/1"}, registry.KINDS[kind])
    del tree["schema"]
    with pytest.raises(RecordError, match='no "schema" field'):
        envelope.convert(tree, registry.KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_field_is_refused_by_name(kind):
    with pytest.raises(RecordError, match="surprise"):
        envelope.convert(trees(kind)[0] | {"surprise": 1}, registry.KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_every_required_field_is_named_when_missing(kind):
    record_type = registry.KINDS[kind]
    required = [field.encode_name for field in msgspec.structs.fields(record_type) if field.required]
    assert required
    for name in required:
        tree = trees(kind)[0]
        del tree[name]
        with pytest.raises(RecordError, match=f"`{name}`"):
            envelope.convert(tree, record_type)


@pytest.mark.parametrize("kind", KINDS)
def test_json_schema_describes_the_example(kind):
    schema = envelope.json_schema(registry.KINDS[kind])
    name = schema["$ref"].rpartition("/")[2]
    top = schema["$defs"][name]
    assert schema["$id"] == f"gossamer.{kind}/1"
    assert top["properties"]["schema"]["enum"] == [f"gossamer.{kind}/1"]
    assert top["additionalProperties"] is False
    for tree in trees(kind):
        assert set(top["required"]) <= set(tree) <= set(top["properties"])
    json.dumps(schema)


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff\xfe", b'"text"', b"[" * 100_000])
def test_damaged_data_is_a_record_error(data):
    with pytest.raises(RecordError, match=r"^some\.json: "):
        envelope.decode(data, Benchmark, where="some.json")


def test_files_are_written_whole_and_read_back(tmp_path):
    record = envelope.decode(registry.example("benchmark"), Benchmark)
    path = tmp_path / "latest.json"
    envelope.write(record, path)
    assert envelope.read(path, Benchmark) == record
    assert [p.name for p in tmp_path.iterdir()] == ["latest.json"]
    with pytest.raises(RecordError, match=r"absent\.json: No such file"):
        envelope.read(tmp_path / "absent.json", Benchmark)


def test_log_lines_append_and_name_the_line_of_an_error(tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_bytes(registry.example("request_log") + b"\n")
    first = list(envelope.read_lines(path, RequestLog))
    envelope.append_lines(first, path)
    assert list(envelope.read_lines(path, RequestLog)) == first * 2
    with path.open("ab") as file:
        file.write(b'{"schema":"gossamer.request_log/1"}\n')
    with pytest.raises(RecordError, match=r"requests\.jsonl:6: .*`time`"):
        list(envelope.read_lines(path, RequestLog))


@pytest.mark.parametrize(
    "field", ["prompt", "messages", "content", "reasoning", "reasoning_content", "arguments", "key"]
)
def test_a_request_log_line_has_no_place_for_content(field):
    tree = trees("request_log")[0]
    with pytest.raises(RecordError, match=field):
        envelope.convert(tree | {field: "the user's words"}, RequestLog)


@pytest.mark.parametrize("field", ["request_id", "model", "finish_reason", "error_code", "upstream", "arm"])
def test_request_log_names_cannot_hold_prose(field):
    for value in ("two words", "x" * 129, ""):
        with pytest.raises(RecordError, match=field):
            envelope.convert(trees("request_log")[0] | {field: value}, RequestLog)


def test_assignment_propensity_must_be_that_of_the_arm():
    tree = trees("assignment")[0]
    with pytest.raises(RecordError, match=r"propensity 0\.5 of arm 'candidate'"):
        envelope.convert(tree | {"propensity": 0.5}, Assignment)
    with pytest.raises(RecordError, match=r"sum to 0\.55"):
        envelope.convert(tree | {"probabilities": {"control": 0.5, "candidate": 0.05}}, Assignment)
    with pytest.raises(RecordError, match="propensity"):
        envelope.convert(tree | {"propensity": 0.0}, Assignment)


def test_a_capture_keeps_unknown_message_keys_byte_for_byte():
    tree = trees("capture")[0]
    tree["exchanges"][0]["answer"]["vendor_key"] = {"a": [1, "\u00e9", None]}
    out = json.loads(envelope.encode(envelope.convert(tree, Capture)))
    assert out["exchanges"][0]["answer"] == tree["exchanges"][0]["answer"]


def test_intervals_flows_and_points_hold_together():
    bad = trees("eval_result")[0]
    bad["arms"][0]["headline"]["low"] = 1.0
    with pytest.raises(RecordError, match="does not hold its estimate"):
        envelope.convert(bad, registry.KINDS["eval_result"])
    bad = trees("eval_result")[0]
    bad["flow"]["excluded"].pop("truncated")
    with pytest.raises(RecordError, match="9 of 1040 sessions"):
        envelope.convert(bad, registry.KINDS["eval_result"])
    bad = trees("eval_result")[0] | {"best": ["nobody"]}
    with pytest.raises(RecordError, match="'nobody'"):
        envelope.convert(bad, registry.KINDS["eval_result"])
    bad = trees("prediction")[0]
    del bad["points"][1]["reason"]
    with pytest.raises(RecordError, match="'row-2' leaves a prediction out"):
        envelope.convert(bad, registry.KINDS["prediction"])


def test_benchmark_failures_are_rows_below_goal_or_without_ratio():
    tree = trees("benchmark")[0]
    row = tree["rows"][0]
    tree["rows"] = [
        row,
        row | {"name": "slow", "ratio": 0.9},
        row | {"name": "blank", "ratio": None},
        row | {"name": "no goal", "ratio": 0.1, "goal": None},
    ]
    assert envelope.convert(tree, Benchmark).failures() == ["slow", "blank"]


@pytest.mark.parametrize("value", ["2026-12-01", "2026-12-01T09:30:00", "2026-12-01T09:30:00+01:00", ""])
def test_times_are_utc(value):
    with pytest.raises(RecordError, match="created"):
        envelope.convert(trees("benchmark")[0] | {"created": value}, Benchmark)
