from dataclasses import replace

import pytest

from gossamer.exam import judge
from gossamer.exam.catalogue import Parameter, Tool
from gossamer.exam.judge import Answer
from gossamer.exam.questions import Question
from gossamer.exam.task import Argument, Task

TAG = Parameter(name="tag", kind="string", about="tag")
COUNT = Parameter(name="count", kind="integer", about="count")
MODE = Parameter(name="mode", kind="enum", about="mode", choices=("a1", "b2"))
FLAGS = Parameter(name="flags", kind="array", about="flags")
TOOL = Tool(name="dip", about="Dip.", acts=("dip",), parameters=(TAG, COUNT, MODE, FLAGS))
TASK = Task(
    tool=TOOL,
    arguments=(
        Argument(parameter=TAG, value="x", value_kind="word"),
        Argument(parameter=COUNT, value=3, value_kind="integer"),
    ),
    shown=(TAG, COUNT, MODE, FLAGS),
)
QUESTION = Question(
    number=0,
    category="call",
    variant="one call",
    phrasing="imperative",
    effort="low",
    tools=[TASK.schema()],
    messages=[{"role": "user", "content": "dip"}],
    wanted=TASK,
)
GOOD = '{"tag": "x", "count": 3}'


def verdict(*calls, content="", ended=True, question=QUESTION):
    answer = Answer(reasoning="", content=content, calls=calls, ended=ended, num_reasoning_tokens=5)
    return judge.judge(answer, question)


def test_exact():
    found = verdict(("dip", GOOD))
    assert found.exact
    assert found.well_formed
    assert found.arguments == (("string", "word", True), ("integer", "integer", True))
    assert verdict(("dip", '{"count": 3.0, "tag": "x"}')).exact


@pytest.mark.parametrize(
    ("arguments", "fault", "well_formed"),
    [
        ('{"tag": "y", "count": 3}', "wrong argument", True),
        ('{"tag": "x", "count": 3, "mode": "a1"}', "wrong argument", True),
        ('{"tag": "x"}', "argument missing", False),
        ('{"tag": "x", "count": 3, "other": 1}', "unknown argument", False),
        ('{"tag": "x", "count": "3"}', "wrong type", False),
        ('{"tag": "x", "count": true}', "wrong type", False),
        ('{"tag": "x", "count": 3.5}', "wrong type", False),
        ('{"tag": 7, "count": 3}', "wrong type", False),
        ('{"tag": "x", "count": 3, "mode": "zz"}', "wrong type", False),
        ('{"tag": "x", "count": 3, "flags": [1]}', "wrong type", False),
        ('["x", 3]', "not an object", False),
        ("{", "not an object", False),
    ],
)
def test_faults_of_a_call(arguments, fault, well_formed):
    found = verdict(("dip", arguments))
    assert (found.fault, found.well_formed, found.exact) == (fault, well_formed, False)


def test_faults_of_an_answer():
    assert verdict().fault == "no call"
    assert verdict(content="done").well_formed
    assert verdict(("dive", GOOD)).fault == "unknown tool"
    assert verdict(("dip", GOOD), ended=False).fault == "no end"
    assert not verdict(("dip", GOOD), ended=False).well_formed
    assert verdict(("dip", GOOD), ("dip", GOOD)).fault == "wrong tool"


def test_without_a_wanted_call():
    free = replace(QUESTION, wanted=None, category="no-tool")
    assert verdict(content="Ahoy.", question=free).exact
    assert verdict(content=" \n", question=free).fault == "wrong text"
    assert verdict(("dip", GOOD), content="Ahoy.", question=free).fault == "needless call"
    echo = replace(free, content="<b>")
    assert verdict(content="<b>", question=echo).exact
    assert verdict(content="b", question=echo).fault == "wrong text"


def test_equality_of_json_values():
    assert judge.same([1, {"a": 2.0}], [1.0, {"a": 2}])
    assert not judge.same(True, 1)
    assert not judge.same(1, True)
    assert not judge.same({"a": 1, "b": 2}, {"a": 1})
    assert not judge.same("1", 1)
