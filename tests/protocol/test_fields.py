import re
from pathlib import Path

import pytest

from gossamer.protocol import fields
from gossamer.protocol.errors import RequestError
from gossamer.protocol.request import parse

DOC = Path(__file__).resolve().parents[2] / "docs" / "api.md"
BASE = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def refused(**extra) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse({**BASE, **extra})
    return caught.value


def test_the_document_shows_the_table():
    page = DOC.read_text()
    assert fields.markdown(fields.CHAT) in page
    for sent, runs_as in fields.EFFORTS.items():
        assert f"| `{sent}` | `{runs_as}` |" in page


def test_names_are_unique():
    names = [field.name for field in fields.CHAT]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", [f.name for f in fields.CHAT if f.treatment == "refused"])
def test_refused_fields_are_named_with_what_to_do(name):
    error = refused(**{name: {"any": "value"}})
    assert (error.status, error.param, error.code) == (400, name, "unsupported_parameter")
    assert error.message.startswith(f"{name} is not accepted: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("n", True),
        ("modalities", ["text", "audio"]),
        ("store", True),
        ("service_tier", "flex"),
    ],
)
def test_single_valued_fields_refuse_other_values(name, value):
    error = refused(**{name: value})
    assert (error.param, error.code) == (name, "unsupported_value")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1),
        ("store", False),
        ("service_tier", "auto"),
    ],
)
def test_single_valued_fields_accept_their_value(name, value):
    assert parse({**BASE, name: value}) == parse(BASE)


def test_unknown_fields_are_refused_by_name():
    error = refused(temprature=1)
    assert (error.param, error.code) == ("temprature", "unknown_parameter")
    assert "'temprature'" in error.message


def test_null_is_absent_for_every_field():
    nulls = {field.name: None for field in fields.CHAT if field.name not in BASE}
    assert parse({**BASE, **nulls, "no_such_field": None}) == parse(BASE)


def test_kept_fields_travel_along():
    kept = {f.name: {"x": 1} for f in fields.CHAT if f.treatment == "kept"}
    assert kept
    assert parse({**BASE, **kept}).extra == kept


@pytest.mark.parametrize(("sent", "runs_as"), fields.EFFORTS.items())
def test_efforts(sent, runs_as):
    assert parse({**BASE, "reasoning_effort": sent}).reasoning_effort == runs_as


def test_effort_defaults_to_max():
    assert parse(BASE).reasoning_effort == "max"


@pytest.mark.parametrize("sent", fields.EFFORTS_OFF)
def test_there_is_no_off_switch(sent):
    assert "always reasons" in refused(reasoning_effort=sent).message


@pytest.mark.parametrize("sent", ["huge", 3, {"effort": "low"}])
def test_unknown_efforts(sent):
    error = refused(reasoning_effort=sent)
    assert error.param == "reasoning_effort"
    assert "use one of" in error.message


def test_the_document_names_every_code_of_an_error():
    source = Path(fields.__file__).resolve().parents[1]
    files = [p for folder in ("protocol", "gateway", "server") for p in (source / folder).glob("*.py")]
    codes = {code for p in files for code in re.findall(r'code="([a-z_]+)"', p.read_text())}
    assert len(codes) > 20
    page = DOC.read_text()
    assert sorted(code for code in codes if f"`{code}`" not in page) == []
