"""The vocabulary: round trips, damaged files, and text that tries to become a control token."""

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.text import pattern, ranks, specials
from gossamer.text.errors import TokenizerError
from gossamer.text.tokenizer import Tokenizer

from .strategies import hostile

BYTE_LINES = [f"{base64.b64encode(bytes((byte,))).decode()} {byte}" for byte in range(256)]


def write_model(folder, lines):
    (folder / "tiktoken.model").write_text("\n".join(lines) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"specials": {"[BOS]": len(lines)}}))
    return folder


@given(text=hostile | st.text())
def test_encode_then_decode_returns_the_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not any(tokenizer.is_special(token_id) for token_id in ids)


@given(data=st.data())
def test_stream_decoder_equals_decode_for_any_ids_and_any_split(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    decoder, text, rest = tokenizer.stream_decoder(), "", list(ids)
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        piece = decoder.feed(rest[:size])
        assert tokenizer.decode(ids).startswith(text + piece)
        text, rest = text + piece, rest[size:]
    assert text + decoder.finish() == tokenizer.decode(ids)
    assert tokenizer.decode_bytes(ids).decode("utf-8", "replace") == tokenizer.decode(ids)


def test_stream_decoder_holds_half_a_character(byte_tokenizer):
    decoder = byte_tokenizer.stream_decoder()
    assert [decoder.feed([byte]) for byte in "€".encode()] == ["", "", "€"]
    assert decoder.feed("€".encode()[:2]) == ""
    assert decoder.finish() == "\ufffd"
    assert decoder.finish() == ""


def test_lone_surrogates_become_the_replacement_character(tokenizer):
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


def test_special_tokens_are_found_by_name_and_decode_to_it(tokenizer):
    open_id = tokenizer.special("<|open|>")
    assert tokenizer.is_special(open_id)
    assert open_id == tokenizer.num_ranks + 3
    assert tokenizer.decode([open_id]) == "<|open|>"
    with pytest.raises(TokenizerError, match=r"no special token '<\|im_end\|>'.*<\|end_of_msg\|>"):
        tokenizer.special("<|im_end|>")


@pytest.mark.parametrize("token_id", [-1, 320, 10**9])
def test_an_id_outside_the_vocabulary_is_named(byte_tokenizer, token_id):
    with pytest.raises(TokenizerError, match=rf"token id {token_id} is outside 0\.\.319"):
        byte_tokenizer.decode([65, token_id])


def test_bytes_only_has_the_shape_of_the_debug_preset(byte_tokenizer):
    assert byte_tokenizer.vocab_size == 320
    assert byte_tokenizer.encode("é") == [0xC3, 0xA9]
    assert list(byte_tokenizer.specials.values()) == list(range(256, 320))


def test_save_then_load_gives_an_equal_tokenizer(merged_tokenizer, tmp_path):
    merged_tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.specials == merged_tokenizer.specials
    assert again.digits == merged_tokenizer.digits
    text = "the message: 123456 你好 <|open|>"
    assert again.encode(text) == merged_tokenizer.encode(text)
    assert Tokenizer.load(tmp_path / "tiktoken.model").encode(text) == again.encode(text)


def test_published_config_layout_names_the_specials(merged_tokenizer, tmp_path):
    merged_tokenizer.save(tmp_path)
    first = merged_tokenizer.num_ranks
    entries = {str(first + 3): {"content": "<|open|>"}, str(first + 63): {"content": "[PAD]"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": entries}))
    loaded = Tokenizer.load(tmp_path)
    assert loaded.special("<|open|>") == first + 3
    assert loaded.special("<|reserved_0|>") == first
    assert loaded.vocab_size == first + 64


def test_the_digits_setting_decides_how_numbers_are_cut(byte_tokenizer):
    table = {bytes((byte,)): byte for byte in range(256)} | {b"12": 256}
    spelled = Tokenizer(table, specials=specials.small(257), digits=1)
    grouped = Tokenizer(table, specials=specials.small(257), digits=3)
    assert spelled.encode("12") == [0x31, 0x32]
    assert grouped.encode("12") == [256]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*BYTE_LINES[:3], "IQ==", *BYTE_LINES[4:]], r"line 4: .*1 fields instead of 2"),
        ([*BYTE_LINES, "!!!! 256"], r"line 257: expected `<base64 token> <rank>`, got '!!!! 256'"),
        ([*BYTE_LINES, "YWI= x"], r"line 257: .*'YWI= x'"),
        ([*BYTE_LINES, "YWI= 7"], r"rank 7 is given to b'\\x07' and to b'ab'"),
        ([*BYTE_LINES, "AA== 256"], r"token b'\\x00' occurs twice"),
        ([*BYTE_LINES, "YWI= 300"], r"ranks must be 0\.\.256 without gaps; 256 is missing"),
        ([*BYTE_LINES[:255], "YWI= 255"], r"1 single-byte tokens are missing, the first is 0xff"),
        ([], r"256 single-byte tokens are missing"),
    ],
)
def test_a_damaged_model_file_is_one_clear_error(tmp_path, lines, message):
    with pytest.raises(TokenizerError, match=message) as caught:
        Tokenizer.load(write_model(tmp_path, lines))
    assert "tiktoken.model" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object"),
        ('{"specials": []}', "malformed special tokens"),
        ('{"specials": {"[BOS]": 3}}', r"'\[BOS\]' has id 3, outside 256"),
        ('{"specials": {"[BOS]": 256, "[EOS]": 256}}', "share id 256"),
        ('{"specials": {}}', "no special tokens"),
        ('{"specials": {"[BOS]": 2000000000}}', "at most 65536 are accepted"),
        ('{"specials": {"[BOS]": 256}, "digits": 2}', "digits must be 1 or 3, got 2"),
        ("{}", "nothing names the special tokens"),
    ],
)
def test_a_damaged_config_is_one_clear_error(tmp_path, config, message):
    write_model(tmp_path, BYTE_LINES)
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.load(tmp_path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(TokenizerError, match=r"expected a folder that holds tiktoken\.model"):
        Tokenizer.load(tmp_path / "nowhere")


def test_ranks_can_be_written_and_read(tmp_path, merged_tokenizer):
    merged_tokenizer.save(tmp_path)
    table = ranks.read(tmp_path / "tiktoken.model")
    ranks.write(table, tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == (tmp_path / "tiktoken.model").read_bytes()


@given(
    runs=st.lists(
        st.tuples(st.sampled_from(["a", " ", "\n", "汉", "é"]), st.integers(1, 60_000)), max_size=14
    )
)
def test_cut_loses_nothing_and_bounds_every_piece(runs):
    text = "".join(char * count for char, count in runs)
    pieces = list(pattern.cut(text))
    assert "".join(pieces) == text
    for piece in pieces:
        assert 0 < len(piece) <= pattern.MAX_CHUNK_CHARS
        assert all(len(run) <= pattern.MAX_RUN_CHARS for run in re.findall(r"\s+|\S+", piece))


def test_a_long_run_is_cut_at_its_own_25000th_character():
    text = "b " + "a" * 60_000 + " c"
    assert [len(piece) for piece in pattern.cut(text)] == [25_002, 25_000, 10_002]
    assert [len(piece) for piece in pattern.cut("a b " * 225_000)] == [400_000, 400_000, 100_000]


def test_short_text_is_never_cut():
    text = "word " * 50_000
    assert list(pattern.cut(text)) == [text]


def test_split_pattern_refuses_other_digit_counts():
    with pytest.raises(ValueError, match="digits must be 1 or 3, got 2"):
        pattern.split_pattern(2)


# What follows needs the released vocabulary.


def test_the_released_vocabulary_has_the_published_ids(kimi):
    assert kimi.vocab_size == 163_840
    words = ["message", "think", "response", "tools", "call", "argument"]
    assert [kimi.encode(word) for word in words] == [[2778], [39964], [12092], [25385], [10257], [47185]]
    published = {"[BOS]": 163_584, "[EOS]": 163_585, "<|end_of_msg|>": 163_586, "<|open|>": 163_587}
    published |= {"<|close|>": 163_588, "<|sep|>": 163_589, "<|media_begin|>": 163_602}
    published |= {"<|media_pad|>": 163_605, "[UNK]": 163_838, "[PAD]": 163_839}
    assert {name: kimi.special(name) for name in published} == published


@given(text=hostile | st.text())
def test_the_released_vocabulary_round_trips(kimi, text):
    assert kimi.decode(kimi.encode(text)) == text
    assert not any(kimi.is_special(token_id) for token_id in kimi.encode(text))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("你好world", ["你好", "world"]),
        ("don't", ["don't"]),
        ("12345", ["123", "45"]),
        ("a  b", ["a", " ", " b"]),
        ("camelCase", ["camel", "Case"]),
        ("x\n\ny", ["x", "\n\n", "y"]),
        ("wow!!\n", ["wow", "!!\n"]),
    ],
)
def test_the_pre_tokeniser_cuts_as_described(text, pieces):
    # Merging everything inside a piece shows where the pieces end.
    table = {bytes((byte,)): byte for byte in range(256)}
    for piece in pieces:
        data = piece.encode()
        for size in range(2, len(data) + 1):
            table.setdefault(data[:size], len(table))
    tokenizer = Tokenizer(table, specials=specials.small(len(table)))
    assert [tokenizer.decode([i]) for i in tokenizer.encode(text)] == pieces
