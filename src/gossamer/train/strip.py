"""Markup to plain text with the standard library: HTML, reStructuredText, WordNet data files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

SKIPPED = frozenset(
    {"script", "style", "nav", "head", "header", "footer", "svg", "button", "form", "noscript"}
)
BLOCKS = frozenset(
    [
        "p",
        "div",
        "section",
        "article",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "li",
        "ul",
        "ol",
        "dl",
        "dt",
        "dd",
        "tr",
        "table",
        "pre",
        "blockquote",
        "br",
        "hr",
        "main",
    ]
)


class _HtmlText(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.skipping = 0
        self.preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SKIPPED or (tag == "div" and (self.skipping or _navigation(attrs))):
            self.skipping += 1
        if tag == "pre":
            self.preformatted += 1
        if self.skipping:
            return
        if tag in BLOCKS:
            self.parts.append("\n")
        if tag == "li":
            self.parts.append("- ")
        if tag in ("td", "th"):
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if self.skipping and (tag in SKIPPED or tag == "div"):
            self.skipping -= 1
        if tag == "pre":
            self.preformatted = max(0, self.preformatted - 1)
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.skipping:
            self.parts.append(data if self.preformatted else re.sub(r"\s+", " ", data))


def _navigation(attrs: list[tuple[str, str | None]]) -> bool:
    classes = dict(attrs).get("class") or ""
    return any(word in classes for word in ("nav", "sidebar", "footer", "toc", "menu", "nosearch"))


def html_text(markup: str) -> str:
    """Readable text of a page: navigation, scripts and styles dropped, preformatted text kept."""
    parser = _HtmlText()
    parser.feed(markup)
    parser.close()
    return tidy("".join(parser.parts))


ROLE = re.compile(r":[a-zA-Z:+-]+:`[!~]?([^`<]*?)(?:\s*<[^`>]*>)?`")
LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{1,2}")
DIRECTIVE = re.compile(r"^(\s*)\.\. ([a-zA-Z:_-]+)::\s?(.*)$")
OPTION = re.compile(r"^\s+:[a-z-]+:(\s.*)?$")
SILENT = frozenset(
    [
        "index",
        "module",
        "moduleauthor",
        "sectionauthor",
        "toctree",
        "highlight",
        "currentmodule",
        "image",
        "figure",
        "only",
        "include",
        "_",
        "role",
        "testsetup",
        "testcleanup",
        "raw",
        "literalinclude",
        "impl-detail-index",
    ]
)


def rst_text(markup: str) -> str:
    """Readable text of reStructuredText: roles and directives reduced to their words."""
    out: list[str] = []
    dropped_indent: int | None = None
    for line in markup.splitlines():
        indent = len(line) - len(line.lstrip())
        if dropped_indent is not None:
            if not line.strip() or indent > dropped_indent:
                continue
            dropped_indent = None
        directive = DIRECTIVE.match(line)
        if directive:
            name, rest = directive.group(2), directive.group(3)
            if name in SILENT:
                dropped_indent = indent
            elif name in ("note", "warning", "seealso"):
                out.append(f"{directive.group(1)}{name.capitalize()}: {rest}")
            elif rest:
                out.append(directive.group(1) + rest)
        elif line.lstrip().startswith(".. "):
            dropped_indent = indent
        elif not OPTION.match(line) and not re.fullmatch(r"\s*([=\-~^\"*#+.'`])\1{3,}\s*", line):
            line = LINK.sub(r"\1", ROLE.sub(r"\1", line))
            out.append(line.replace("``", "`").rstrip())
    return tidy("\n".join(out).replace("::\n", ":\n"))


PARTS = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}


def wordnet_entries(data: str) -> Iterator[str]:
    """One sentence per sense: words, part of speech, gloss with its examples."""
    for line in data.splitlines():
        if line.startswith("  ") or "|" not in line:
            continue
        head, gloss = line.split("|", 1)
        fields = head.split()
        count = int(fields[3], 16)
        words = [re.sub(r"\(.*\)$", "", fields[4 + 2 * i]).replace("_", " ") for i in range(count)]
        yield f"{', '.join(words)} ({PARTS[fields[2]]}): {gloss.strip()}."


def tidy(text: str) -> str:
    """No trailing blanks, no runs of empty lines, Unix line ends."""
    text = re.sub(r"(?m)^- *\n\s*(?=\S)", "- ", text.replace("\r\n", "\n").replace("\xa0", " "))
    lines = [line.rstrip() for line in text.split("\n") if line.strip() != "-"]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
