"""The disk's failures stay the disk's: damaged, foreign and unwritable files cost a warning, no more."""

import errno
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from gossamer.engine.settings import SettingsError, SpillSettings
from gossamer.engine.spill import HEADER_BYTES, SpillStore

SIZE = 24


def digest(number):
    return bytes([number]) * 32


def payload(number):
    return np.arange(number, number + SIZE, dtype=np.uint8)


def store(folder, fingerprint="model", max_bytes=10_000):
    return SpillStore(SpillSettings(directory=folder, max_bytes=max_bytes, fingerprint=fingerprint))


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def test_what_was_put_survives_a_restart(tmp_path):
    folder = tmp_path / "made" / "on demand"
    first = store(folder)
    assert first.put(digest(1), "block", payload(1))
    assert first.put(digest(1), "state", payload(2))
    assert {path.name for path in folder.iterdir()} == {f"{'01' * 32}.block", f"{'01' * 32}.state"}
    second = store(folder)
    assert (second.num_files, second.num_bytes) == (2, 2 * (SIZE + HEADER_BYTES))
    assert np.array_equal(second.get(digest(1), "block", SIZE), payload(1))
    assert np.array_equal(second.get(digest(1), "state", SIZE), payload(2))
    assert second.get(digest(2), "block", SIZE) is None
    assert (second.has(digest(1), "state"), second.has(digest(2), "state")) == (True, False)


def test_the_oldest_go_when_the_folder_is_full(tmp_path):
    small = store(tmp_path, max_bytes=3 * (SIZE + HEADER_BYTES))
    for number in (1, 2, 3):
        small.put(digest(number), "block", payload(number))
    small.touch(digest(1))
    small.put(digest(4), "block", payload(4))
    assert [small.has(digest(number), "block") for number in (1, 2, 3, 4)] == [True, False, True, True]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == small.num_bytes
    assert not small.put(digest(5), "block", np.zeros(1000, np.uint8))
    assert small.num_files == 3


def test_a_restart_knows_what_was_used_last_and_obeys_a_smaller_limit(tmp_path):
    first = store(tmp_path)
    for number in (1, 2, 3):
        first.put(digest(number), "block", payload(number))
        os.utime(tmp_path / f"{digest(number).hex()}.block", (number, number))
    first.touch(digest(1))
    second = store(tmp_path, max_bytes=2 * (SIZE + HEADER_BYTES))
    assert [second.has(digest(number), "block") for number in (1, 2, 3)] == [True, False, True]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "is damaged"),
        (lambda data: data[:-1], "is damaged"),
        (lambda data: data + b"x", "is damaged"),
        (lambda data: data[:60], "is damaged"),
        (lambda data: b"", "not a file of this format"),
        (lambda data: b"G" + data[1:], "not a file of this format"),
        (lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:], "belongs to another model"),
    ],
)
def test_a_damaged_file_is_ignored_with_a_warning(tmp_path, caplog, harm, why):
    store(tmp_path).put(digest(1), "block", payload(1))
    path = only_file(tmp_path)
    path.write_bytes(harm(path.read_bytes()))
    again = store(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert again.get(digest(1), "block", SIZE) is None
    assert why in caplog.text
    assert path.name in caplog.text
    assert not path.exists()
    assert (again.num_bytes, again.num_files, again.has(digest(1), "block")) == (0, 0, False)
    # It can be stored anew.
    assert again.put(digest(1), "block", payload(1))
    assert np.array_equal(again.get(digest(1), "block", SIZE), payload(1))


def test_a_file_that_grew_beyond_memory_is_not_read_whole(tmp_path, caplog):
    store(tmp_path).put(digest(1), "block", payload(1))
    os.truncate(only_file(tmp_path), 1 << 40)
    # Its size alone would make the scan forget it under any sensible limit.
    again = store(tmp_path, max_bytes=1 << 41)
    with caplog.at_level(logging.WARNING):
        assert again.get(digest(1), "block", SIZE) is None
    assert "is damaged" in caplog.text
    assert again.num_files == 0


def test_an_entry_that_cannot_be_looked_at_hides_no_other(tmp_path, caplog):
    first = store(tmp_path)
    for number in range(3):
        first.put(digest(number), "block", payload(number))
    (tmp_path / f"{'0' * 63}f.block").symlink_to(tmp_path / "nowhere")
    assert store(tmp_path).num_files == 3
    assert "nowhere" in caplog.text or "0f.block" in caplog.text


def test_a_file_under_another_name_kind_or_size_is_not_believed(tmp_path, caplog):
    first = store(tmp_path)
    first.put(digest(1), "block", payload(1))
    only_file(tmp_path).rename(tmp_path / f"{digest(2).hex()}.block")
    assert store(tmp_path).get(digest(2), "block", SIZE) is None
    store(tmp_path).put(digest(1), "block", payload(1))
    only_file(tmp_path).rename(tmp_path / f"{digest(1).hex()}.state")
    assert store(tmp_path).get(digest(1), "state", SIZE) is None
    third = store(tmp_path)
    third.put(digest(1), "block", payload(1))
    assert third.get(digest(1), "block", SIZE + 8) is None
    assert f"holds {SIZE} bytes, this model's blocks have {SIZE + 8}" in caplog.text


def test_a_file_that_disappeared_is_missed_without_harm(tmp_path, caplog):
    first = store(tmp_path)
    first.put(digest(1), "block", payload(1))
    only_file(tmp_path).unlink()
    assert first.get(digest(1), "block", SIZE) is None
    assert "cannot be read" in caplog.text
    assert first.num_bytes == 0


def test_what_a_crash_left_is_cleared_and_other_files_are_left_alone(tmp_path):
    (tmp_path / "ab.block.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    assert store(tmp_path).num_files == 0
    assert only_file(tmp_path).name == "notes.txt"


def no_space(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["open", "replace"])
def test_a_full_disk_is_said_once_and_nothing_stays_behind(tmp_path, monkeypatch, caplog, where):
    full = store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "open") if where == "open" else (os, "replace")), no_space)
        for number in (1, 2, 3):
            assert not full.put(digest(number), "block", payload(number))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text
    assert not list(tmp_path.iterdir())
    assert (full.num_bytes, full.has(digest(1), "block")) == (0, False)
    assert full.put(digest(1), "block", payload(1))


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    blocked = store(tmp_path / "file" / "folder")
    assert not blocked.put(digest(1), "block", payload(1))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


@pytest.mark.parametrize("wrong", [{"max_bytes": 0}, {"fingerprint": ""}])
def test_settings_that_cannot_work_are_refused(tmp_path, wrong):
    with pytest.raises(SettingsError):
        SpillSettings(**{"directory": tmp_path, "max_bytes": 1, "fingerprint": "x", **wrong})
