"""API keys: what is kept of them, what is accepted, what changes while a server runs."""

import hmac
import json
import stat

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gossamer.gateway import keys
from gossamer.gateway.keys import KeyFileError, KeyRing, new_key, presented_key, read_keys, write_keys
from gossamer.protocol.errors import RequestError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.json"


def ring(path, *entries):
    write_keys(path, entries)
    return KeyRing(path)


def test_the_file_says_nothing_of_the_secret(path):
    secret, entry = new_key("ann", max_concurrent=2, tokens_per_minute=100)
    write_keys(path, [entry])
    assert secret.split("-", 2)[2] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_keys(path) == (entry,)
    assert [p.name for p in path.parent.iterdir()] == ["keys.json"]


def test_two_keys_of_one_name_have_nothing_in_common():
    (one, first), (two, second) = new_key("ann"), new_key("ann")
    assert one != two
    assert (first.id, first.salt, first.hash) != (second.id, second.salt, second.hash)


def test_the_right_key_alone_is_found(path):
    secret, entry = new_key("ann")
    other, stranger = new_key("bob")[0], new_key("eve")[0]
    found = ring(path, entry, new_key("bob")[1])
    assert found.find(secret) == entry
    mixed = secret[: len("gsk-") + 16] + stranger[len("gsk-") + 16 :]
    last = "A" if secret[-1] != "A" else "B"
    for wrong in (
        "",
        "gsk-",
        stranger,
        other,
        mixed,
        secret[:-1],
        secret + "x",
        secret[:-1] + last,
        secret + "\n",
    ):
        assert found.find(wrong) is None


@given(st.text())
def test_any_text_is_no_key(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    assert ring(path, new_key("ann")[1]).find(text) is None


def test_known_and_unknown_ids_take_one_comparison_each(path, monkeypatch):
    secret, entry = new_key("ann")
    found = ring(path, entry)
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(keys.hmac, "compare_digest", lambda a, b: compared.append(len(a)) or real(a, b))
    for presented in (secret, secret[:-1] + "_", new_key("eve")[0], "short"):
        compared.clear()
        found.find(presented)
        assert compared == [64]


def test_a_change_of_the_file_counts_at_once(path):
    (one, first), (two, second) = new_key("ann"), new_key("bob")
    found = ring(path, first)
    write_keys(path, [first, second])
    assert found.find(two) == second
    write_keys(path, [second])
    assert found.find(one) is None


def test_a_damaged_change_leaves_the_keys_as_they_were(path, caplog):
    secret, entry = new_key("ann")
    found = ring(path, entry)
    for damage in ('{"schema": "gossamer.api_keys/1", "keys": [', "{}", ""):
        path.write_text(damage)
        assert found.find(secret) == entry
    path.unlink()
    assert found.find(secret) == entry
    assert "cannot be used" in caplog.text


def test_files_that_are_refused(path):
    with pytest.raises(KeyFileError, match="gossamer keys add NAME"):
        read_keys(path)
    _, entry = new_key("ann")
    write_keys(path, [entry, new_key("ann")[1]])
    with pytest.raises(KeyFileError, match="same name"):
        read_keys(path)
    write_keys(path, [entry])
    tree = json.loads(path.read_text())
    tree["keys"][0]["secret"] = "x"
    path.write_text(json.dumps(tree))
    with pytest.raises(KeyFileError, match="secret"):
        read_keys(path)


@pytest.mark.parametrize(
    "wrong", [{"name": "two words"}, {"name": ""}, {"max_concurrent": 0}, {"tokens_per_minute": -1}]
)
def test_entries_that_cannot_be(wrong):
    with pytest.raises(KeyFileError):
        new_key(**{"name": "ann", **wrong})


def headers(**given):
    return lambda name: given.get(name.replace("-", "_"), [])


def test_where_a_key_is_looked_for():
    assert presented_key(headers()) is None
    assert presented_key(headers(authorization=["Bearer a"])) == "a"
    assert presented_key(headers(authorization=["bearer  a "])) == "a"
    assert presented_key(headers(x_api_key=["a"])) == "a"
    assert presented_key(headers(x_api_key=["a"], authorization=["Bearer a"])) == "a"
    for wrong in (
        headers(x_api_key=["a"], authorization=["Bearer b"]),
        headers(x_api_key=["a", "b"]),
        headers(authorization=["Basic YTpi"]),
    ):
        with pytest.raises(RequestError) as caught:
            presented_key(wrong)
        assert caught.value.status == 401
