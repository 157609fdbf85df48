"""Binary containers of text, each written here by hand."""

import gzip
import struct
import subprocess
import zlib

import pytest

from gossamer.train import packages, readers
from gossamer.train.errors import TrainError


def test_sword_blocks_are_plain_paragraphs(tmp_path):
    start, end = (f'<div {name}="g1" type="x-p"/>' for name in ("sID", "eID"))
    osis = f'{start} Rest &amp; <hi type="italic">be\n still</hi>. {end}{start}Next.'
    packed = zlib.compress(osis.encode())
    (tmp_path / "ot.bzs").write_bytes(struct.pack("<6I", 0, 0, 0, 3, len(packed), len(osis)))
    (tmp_path / "ot.bzz").write_bytes(b"xyz" + packed)
    assert list(readers.sword_blocks(tmp_path / "ot.bzs")) == [("ot#1", "Rest & be still. Next.\n")]


def r_record(flags: int, lines: list[str]) -> bytes:
    raw = (
        b"X\n"
        + struct.pack(">IIII", 3, 0x40200, 0x30500, 5)
        + b"UTF-8"
        + struct.pack(">II", flags, len(lines))
    )
    for line in lines:
        raw += struct.pack(">II", 0x40009, len(line.encode())) + line.encode()
    return struct.pack(">I", len(raw)) + zlib.compress(raw)


def test_r_character_vectors_are_read_and_other_objects_left_out(tmp_path):
    (tmp_path / "Rdata.rdb").write_bytes(
        r_record(16, ["EMMA", "", "naïve"]) + r_record(14, []) + r_record(16, ["b"])
    )
    assert list(readers.r_character_vectors(tmp_path / "Rdata.rdb")) == [["EMMA", "", "naïve"], ["b"]]


def test_dictd_text_is_unpacked(tmp_path):
    raw = b"00-database-url\n00-database-short\n   Short\nword\n  meaning \n"
    (tmp_path / "a.dict.dz").write_bytes(gzip.compress(raw))
    assert (
        readers.dictd_text(tmp_path / "a.dict.dz")
        == "00-database-url\n00-database-short\n   Short\nword\n  meaning\n"
    )


def test_books_lose_their_notices_and_wrapped_lines():
    line = "It was a bright day and everyone in the town"
    text = f"CHAPTER I\n\n{line}\nknew it.\n\n    indented\n"
    raw = f"Notice\n*** START OF THIS BOOK ***\n{text}*** END OF THIS BOOK"
    assert readers.book_text(raw) == f"CHAPTER I\n\n{line} knew it.\n\n    indented\n"


@pytest.mark.parametrize(
    ("call", "client"),
    [
        (lambda cache: packages.debian("some-doc", cache), "apt-get"),
        (lambda cache: packages.npm("some-text", "1.0", cache, ("package/",), "package/LICENSE"), "npm"),
    ],
)
def test_a_missing_client_is_named_with_the_package(tmp_path, monkeypatch, call, client):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TrainError, match=rf"some-\w+ needs {client}.*--data-dir"):
        call(tmp_path)


def test_a_refusing_client_is_quoted_with_the_package(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "E: no such package\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: failed)
    with pytest.raises(TrainError, match=r"data package some-doc: `apt-get` failed \(E: no such package\)"):
        packages.run(["apt-get", "download", "some-doc"], "some-doc")
