import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.exam import judge
from gossamer.exam.catalogue import FAMILIES as TOOL_FAMILIES
from gossamer.exam.errors import ExamError
from gossamer.exam.phrasing import FAMILIES
from gossamer.exam.questions import EFFORTS, Generator
from gossamer.exam.words import WordSource
from gossamer.protocol.tools import parse_tools
from gossamer.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.bytes_only()
NUMBERS = st.integers(0, 5000)


@given(seed=st.integers(0, 2**32), number=NUMBERS, passed=st.booleans())
def test_a_right_answer_is_judged_exact(seed, number, passed):
    generator = Generator(seed=seed)
    question = generator.pass_back(number) if passed else generator.question(number)
    ids = judge.reference_ids(question, TOKENIZER)
    verdict = judge.judge(judge.read(ids, question, TOKENIZER), question)
    assert verdict.well_formed
    if question.wanted is not None or question.content is not None:
        assert verdict.exact, (question, verdict)
    else:
        # The reference of "any text will do" is empty, which will not do.
        assert verdict.fault == "wrong text"


@given(seed=st.integers(0, 2**32), number=NUMBERS)
def test_every_argument_stands_in_the_prompt(seed, number):
    question = Generator(seed=seed).question(number)
    text = "\n".join(message["content"] for message in question.messages)
    for argument in question.wanted.arguments if question.wanted else ():
        value = argument.value
        if isinstance(value, bool):
            assert any(word in text.lower() for word in (("true", "yes") if value else ("false", "no")))
        elif isinstance(value, (list, dict)):
            parts = value if isinstance(value, list) else [x for item in value.items() for x in item]
            assert all(str(part) in text for part in parts)
        else:
            written = str(value)
            assert written in text or json.dumps(value, ensure_ascii=False)[1:-1] in text


@given(seed=st.integers(0, 2**32), number=NUMBERS)
def test_tools_are_valid_and_hold_the_wanted_one(seed, number):
    question = Generator(seed=seed).question(number)
    assert 1 <= len(question.tools) <= 5
    parse_tools(question.tools, "tools", names := set())
    if question.wanted is not None:
        assert question.wanted.tool.name in names
        assert 1 <= len(question.wanted.arguments) <= 4


@given(seed=st.integers(0, 2**32), number=NUMBERS)
def test_the_choice_stands_in_the_reasoning_alone(seed, number):
    question = Generator(seed=seed).pass_back(number)
    bare = question.without_reasoning()
    assert not any("reasoning_content" in message for message in bare.messages)
    name, value = re.search(
        r" for it\. (\w+) = (.*?)\. First", question.messages[1]["reasoning_content"]
    ).groups()
    (chosen,) = (a for a in question.wanted.arguments if a.name == name)
    assert chosen.value == value
    if chosen.parameter.kind == "string":
        assert chosen.value not in json.dumps(bare.messages, ensure_ascii=False)


def test_same_seed_same_questions_and_other_seed_others():
    first, again, other = ([Generator(seed=s).question(n) for n in range(40)] for s in (3, 3, 4))
    assert first == again
    assert [q.messages for q in first] != [q.messages for q in other]


def test_the_mix_is_what_is_promised():
    questions = [Generator(seed=1).question(n) for n in range(600)]
    categories = Counter(q.category for q in questions)
    assert categories == {"call": 330, "no-tool": 90, "second": 120, "error": 60}
    assert Counter(q.effort for q in questions) == dict.fromkeys(EFFORTS, 200)
    assert len(FAMILIES) >= 12
    assert sum(family.is_test_only for family in FAMILIES.values()) >= 4
    asked = Counter(q.phrasing for q in questions if q.category == "call")
    assert set(asked) == set(FAMILIES)
    assert min(asked.values()) >= 15
    kinds = Counter(a.parameter.kind for q in questions if q.wanted for a in q.wanted.arguments)
    assert set(kinds) == {"string", "number", "integer", "boolean", "enum", "array", "object"}
    assert min(kinds.values()) >= 20
    assert set(Counter(len(q.tools) for q in questions)) == {1, 2, 3, 4, 5}


def test_names_are_used_once():
    tools = [tool for family in TOOL_FAMILIES.values() for tool in family]
    assert len({tool.name for tool in tools}) == len(tools)
    names = [p.name for tool in tools for p in tool.parameters]
    assert len(set(names)) == len(names)


def test_words_of_a_file_are_used(tmp_path):
    path = tmp_path / "words.txt"
    listed = [f"qq{a}{b}xx" for a in "abcdefgh" for b in "abcdefgh"]
    path.write_text("\n".join(listed))
    generator = Generator(seed=1, words=WordSource.read(path))
    text = json.dumps([generator.question(n).messages for n in range(20)])
    assert sum(word in text for word in listed) > 10


def test_too_few_words_are_refused(tmp_path):
    path = tmp_path / "few.txt"
    path.write_text("three short words")
    with pytest.raises(ExamError, match="give at least 50"):
        WordSource.read(path)
    with pytest.raises(ExamError, match="cannot read"):
        WordSource.read(tmp_path / "absent")
