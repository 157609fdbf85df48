"""Text extraction, held-out split, sources and vocabulary."""

import pytest

from gossamer.train import corpus, sources, strip, vocab
from gossamer.train.errors import TrainError


def test_html_keeps_text_and_drops_navigation_and_scripts():
    page = (
        "<html><head><title>t</title><style>p{}</style></head><body><nav>menu</nav>"
        "<div class='navheader'><div>Prev</div> Up</div><h1>Head</h1><p>One &amp;\n two</p>"
        "<pre>a\n  b</pre><ul><li>x</li></ul><script>no()</script></body></html>"
    )
    text = strip.html_text(page)
    assert text == "Head\n\nOne & two\n\na\n  b\n\n- x\n"


def test_rst_roles_links_and_directives_become_words():
    source = (
        "Title\n=====\n\n.. index:: foo\n\nSee :func:`os.path.join` and `site <http://e.org>`_.\n\n"
        ".. note:: Careful.\n\n.. function:: f(x)\n   :noindex:\n\n   Does it::\n\n     f(1)\n\n"
        ".. comment\n   gone\n"
    )
    text = strip.rst_text(source)
    assert "See os.path.join and site." in text
    assert "Note: Careful." in text
    assert "f(x)" in text
    assert "f(1)" in text
    for gone in ("====", "index", "noindex", "gone", "http"):
        assert gone not in text


def test_wordnet_line_becomes_a_sentence():
    line = (
        '00005787 03 n 02 benthos 0 sea_floor 0 002 @ 00004475 n 0000 + 02 a 0101 | life of the sea; "b"  \n'
    )
    head = "  1 This software and database is being provided\n"
    assert list(strip.wordnet_entries(head + line)) == ['benthos, sea floor (noun): life of the sea; "b".']


def test_local_text_files_instead_of_packages(tmp_path):
    (tmp_path / "a.txt").write_text("Some words. " * 40)
    (tmp_path / "short.txt").write_text("no")
    documents, manifest = corpus.build(sources.gather(tmp_path / "cache", tmp_path), seed=1)
    assert [d.path for d in documents] == ["a.txt"]
    assert manifest[0]["licence"] == "as stated by the user"
    corpus.save(documents, manifest, tmp_path / "out")
    assert corpus.read(tmp_path / "out") == (documents, manifest)


def test_a_folder_without_text_is_an_error(tmp_path):
    with pytest.raises(TrainError, match="yields no text"):
        corpus.build(sources.gather(tmp_path / "cache", tmp_path), seed=1)
    with pytest.raises(TrainError, match="is not a folder"):
        sources.gather(tmp_path / "cache", tmp_path / "absent")


def test_a_machine_without_the_package_client_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TrainError, match="--data-dir"):
        sources.gather(tmp_path / "cache")


def test_navigation_lines_are_dropped_when_most_pages_have_them():
    texts = {f"p{i}": f"Prev Next\nText number {i}.\n" for i in range(corpus.BOILERPLATE_FILES)}
    cleaned = corpus._without_boilerplate(texts)
    assert cleaned["p3"] == "Text number 3.\n"


def test_vocabulary_has_the_size_asked_for_and_round_trips():
    pytest.importorskip("tokenizers")
    texts = [f"word{i} another thing number {i}; {i * 7} parts of speech\n" * 3 for i in range(400)]
    tokenizer = vocab.learn(texts, vocab_size=340)
    assert tokenizer.vocab_size == 340
    assert tokenizer.special("[BOS]") == 276
    for text in ("plain words", "naïve 天气 🙂 <|open|>", " \n\t x  y", "12345"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("12345")) == 5
    assert len(tokenizer.encode("another")) < len("another")


def test_too_little_text_for_the_vocabulary_is_an_error():
    pytest.importorskip("tokenizers")
    with pytest.raises(TrainError, match="use more text"):
        vocab.learn(["abc"], vocab_size=4096)
