"""The exam shares no tool, parameter, list of values or sentence with the code that trains.

Meant by disjoint: no literal text in `gossamer.train` equals a tool's name, a parameter's name, a choice, a
field or a fixed text of the exam; no text of either holds five words in a row of the other's requests; and
no dialogue made for training declares a tool or a set of parameters that the exam declares. Words drawn at
random are the exam's own inventions (or those of --words), so they are not compared.
"""

import ast
import inspect
import itertools
import re
from pathlib import Path

import pytest

from gossamer.exam import catalogue, phrasing, questions, values

pytest.importorskip("torch")
import gossamer.train as train

RUN = 5


def literals(path: Path) -> set[str]:
    """String constants of a module that are not docstrings."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    }


@pytest.fixture(scope="module")
def trained() -> set[str]:
    folder = Path(train.__file__).parent
    return set().union(*map(literals, folder.rglob("*.py")))


def runs(texts: set[str]) -> set[tuple[str, ...]]:
    found = set()
    for text in texts:
        words = re.findall(r"[a-z']+", re.sub(r"\{\w*\}", " | ", text.lower()).replace("|", "\n"))
        found |= {tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}
    return found


def catalogue_names() -> dict[str, set[str]]:
    tools = list(itertools.chain.from_iterable(catalogue.FAMILIES.values()))
    parameters = [p for tool in tools for p in tool.parameters]
    return {
        "tools": {tool.name for tool in tools},
        "descriptions": {tool.about for tool in tools} | {p.about for p in parameters},
        "acts": {act for tool in tools for act in tool.acts},
        "parameters": {p.name for p in parameters},
        "choices": {choice for p in parameters for choice in p.choices},
        "result fields": {*questions.RESULT_FIELDS, *(name for name, _ in questions.SIDE_FIELDS)},
        "fixed texts": {*questions.GREETINGS, *questions.RIDDLES, *questions.ECHOES},
        "invented verbs": set(catalogue.INVENTED_VERBS),
        "folders": set(values.FOLDERS),
        "characters": {values.CJK, values.KANA},
    }


@pytest.mark.parametrize("what", catalogue_names())
def test_no_name_or_value_is_a_literal_of_training(trained, what):
    assert not catalogue_names()[what] & trained
    if what in ("tools", "parameters"):
        # Nor a word of a longer literal, such as a list in one string.
        words = {word for text in trained for word in re.findall(r"\w+", text)}
        assert not catalogue_names()[what] & words


def test_no_five_words_in_a_row_are_shared(trained):
    own = literals(Path(inspect.getfile(phrasing))) | literals(Path(inspect.getfile(questions)))
    assert not runs(own) & runs(trained)


def test_no_training_dialogue_declares_a_tool_of_the_exam():
    from gossamer.train.dialogue.generate import Generator

    tools = list(itertools.chain.from_iterable(catalogue.FAMILIES.values()))
    names = {tool.name for tool in tools}
    parameters = {p.name for tool in tools for p in tool.parameters}
    generator = Generator(11)
    seen = 0
    for number in range(300):
        for tool in generator.dialogue(number).tools:
            seen += 1
            function = tool["function"]
            assert function["name"] not in names
            assert not set(function["parameters"]["properties"]) & parameters
    assert seen > 50
