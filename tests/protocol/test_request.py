import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.protocol.errors import RequestError
from gossamer.protocol.request import decode_json, parse

USER = {"role": "user", "content": "hi"}
BASE = {"model": "m", "messages": [USER]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def refused(tree, **options) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(tree, **options)
    return caught.value


def call(call_id="f:0", name="f", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls, **extra):
    return {"role": "assistant", "content": None, "reasoning_content": "", "tool_calls": list(calls), **extra}


def result(call_id="f:0"):
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def test_defaults():
    request = parse(BASE)
    assert (request.temperature, request.top_p, request.max_tokens, request.seed) == (1.0, 0.95, None, None)
    assert (request.stream, request.include_usage, request.tool_choice) == (False, False, "auto")
    assert (request.parallel_tool_calls, request.stop, request.response_format) == (True, (), None)


def test_max_completion_tokens_wins():
    assert parse({**BASE, "max_tokens": 5}).max_tokens == 5
    assert parse({**BASE, "max_tokens": 5, "max_completion_tokens": 7}).max_tokens == 7


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": 1.01}, "min_p"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": False}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"٣": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 1, "01": 1}}, "logit_bias"),
        ({"logit_bias": {"9" * 11: 1}}, "logit_bias"),
        ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
        ({"logit_bias": {"5": 100.5}}, "logit_bias.5"),
        ({"logit_bias": {"5": True}}, "logit_bias.5"),
        ({"logprobs": 1}, "logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 6, "max_completion_tokens": 5}, "min_tokens"),
        ({"ignore_eos": "yes"}, "ignore_eos"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"stop": ["a"] * 6}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": "x" * 33}, "stop"),
        ({"stop": "é" * 17}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"other": 1}}, "stream_options.other"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)
def test_bad_values_are_named(extra, param):
    error = refused({**BASE, **extra})
    assert error.param == param
    assert error.status == 400
    assert error.body()["error"] == {
        "message": error.message,
        "type": "invalid_request_error",
        "param": param,
        "code": error.code,
    }


def test_sampling_fields():
    plain = parse(BASE)
    assert (plain.top_k, plain.min_p, plain.repetition_penalty, plain.logprobs) == (None, 0.0, 1.0, None)
    assert (plain.presence_penalty, plain.frequency_penalty, plain.logit_bias) == (0.0, 0.0, {})
    assert (plain.min_tokens, plain.ignore_eos) == (0, False)
    sent = {"min_p": 0.1, "presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 1.1}
    sent |= {"min_tokens": 5, "ignore_eos": True, "top_k": 40}
    request = parse({**BASE, **sent, "max_tokens": 5, "logit_bias": {"7": -100, "12": 0.5}})
    assert {name: getattr(request, name) for name in sent} == sent
    assert request.logit_bias == {7: -100.0, 12: 0.5}


@pytest.mark.parametrize("every", [0, -1])
def test_top_k_says_all_the_way_other_engines_do(every):
    assert parse({**BASE, "top_k": every}).top_k is None


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
        ({"logprobs": False}, None),
        ({"top_logprobs": 0}, None),
    ],
)
def test_logprobs_and_their_alternatives_are_one_number(sent, count):
    assert parse({**BASE, **sent}).logprobs == count


def test_stop_is_one_string_or_several():
    assert parse({**BASE, "stop": "a"}).stop == ("a",)
    assert parse({**BASE, "stop": ["a", "b", "a"]}).stop == ("a", "b")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nan", b'{"a": NaN}', b'{"a": 1e999}', b'"\xff"', b'"\\ud800"', b"[" * 100_000, b"{} x"],
)
def test_bodies_that_are_not_json(body):
    with pytest.raises(RequestError) as caught:
        decode_json(body)
    assert caught.value.code == "invalid_json"


@given(st.binary(max_size=40))
def test_any_bytes_decode_or_are_refused(body):
    with contextlib.suppress(RequestError):
        decode_json(body)


@given(
    JSON,
    st.sampled_from(
        [
            "messages",
            "tools",
            "stop",
            "response_format",
            "tool_choice",
            "stream_options",
            "model",
            "logit_bias",
            "logprobs",
            "top_k",
        ]
    ),
)
def test_any_json_is_parsed_or_refused(tree, field):
    for candidate in (
        tree,
        {**BASE, field: tree},
        {**BASE, "messages": [{"role": "assistant", "tool_calls": tree}]},
    ):
        with contextlib.suppress(RequestError):
            parse(candidate)


def test_results_must_answer_their_calls():
    good = [USER, calling(call("a"), call("b")), result("b"), result("a"), USER]
    assert len(parse({**BASE, "messages": good}).messages) == 5
    error = refused({**BASE, "messages": [USER, calling(call("a"), call("b"), call("c")), result("b"), USER]})
    assert error.param == "messages[1].tool_calls"
    assert "did not have response messages: a, c (message at index 1)" in error.message
    error = refused({**BASE, "messages": [USER, calling(call("a"))]})
    assert "did not have response messages: a" in error.message


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([USER, result("a")], "matches no call"),
        ([result("a")], "matches no call"),
        ([USER, calling(call("a")), result("x")], "matches no call"),
        ([USER, calling(call("a")), result("a"), result("a")], "is answered twice"),
        ([USER, calling(call("a")), result("a"), USER, result("a")], "matches no call"),
    ],
)
def test_stray_results_are_refused(messages, fault):
    error = refused({**BASE, "messages": messages})
    assert error.param == f"messages[{len(messages) - 1}].tool_call_id"
    assert fault in error.message


def test_reasoning_must_come_back_with_calls():
    bare = calling(call())
    del bare["reasoning_content"]
    tree = {**BASE, "messages": [USER, bare, result(), USER]}
    error = refused(tree)
    assert error.message == (
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"
    )
    assert error.code == "reasoning_content_missing"
    assert parse(tree, passback="allow").messages[1].reasoning is None
    # Empty is what the model said; missing is what the client lost.
    assert parse({**BASE, "messages": [USER, calling(call()), result()]}).messages[1].reasoning == ""


def test_only_the_last_message_can_be_continued():
    half = {"role": "assistant", "content": "Once", "partial": True}
    assert parse({**BASE, "messages": [USER, half]}).messages[-1].partial
    assert refused({**BASE, "messages": [half, USER]}).param == "messages[0].partial"


class CountedId(str):
    """An id that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other):
        CountedId.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("answered", [True, False])
def test_many_calls_are_checked_in_linear_time(answered):
    CountedId.comparisons = 0
    num_calls = 400
    calls = [call(CountedId(f"f:{i}")) for i in range(num_calls)]
    results = [result(CountedId(f"f:{i}")) for i in reversed(range(num_calls))] if answered else []
    with contextlib.nullcontext() if answered else pytest.raises(RequestError):
        parse({**BASE, "messages": [USER, calling(*calls), *results]})
    # Comparing each with each would be 160,000.
    assert CountedId.comparisons < 20 * num_calls


def test_unanswered_calls_are_named_up_to_ten():
    error = refused({**BASE, "messages": [USER, calling(*(call(f"f:{i}") for i in range(12)))]})
    assert "f:0, f:1, f:2, f:3, f:4, f:5, f:6, f:7, f:8, f:9 and 2 more" in error.message


HUGE = "x" * 100_000


@pytest.mark.parametrize(
    "tree",
    [
        {**BASE, HUGE: 1},
        {**BASE, "messages": [{**USER, HUGE: 1}]},
        {**BASE, "messages": [USER, calling(call(HUGE), call(HUGE))]},
        {**BASE, "messages": [USER, calling(*(call(f"{i}{HUGE}") for i in range(20)))]},
        {**BASE, "messages": [USER, result(HUGE)]},
        {**BASE, "messages": [{**USER, "role": HUGE}]},
        {**BASE, "stream": True, "stream_options": {HUGE: 1}},
        {**BASE, "stop": HUGE},
        {**BASE, "logit_bias": {HUGE: 1}},
        {**BASE, "logit_bias": {"1": HUGE}},
        {**BASE, "tool_choice": HUGE},
        {**BASE, "response_format": {"type": HUGE}},
        {**BASE, "tools": [{"type": "function", "function": {"name": HUGE}}]},
    ],
)
def test_an_error_quotes_little_of_what_was_sent(tree):
    error = refused(tree)
    assert len(error.message) <= 1000
    assert len(error.param or "") <= 200
    assert len(str(error.body())) < 2000


@pytest.mark.parametrize("half", ["\\ud83d", "\\uDE00", "\\ud83d\\ud83d\\ude00", "\\\\\\ud800"])
def test_half_a_character_is_named(half):
    with pytest.raises(RequestError, match=r"the escape \\u\w{4} at byte \d+ is half a character") as caught:
        decode_json(f'{{"content": "a{half}b"}}'.encode())
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize("text", ["\\ud83d\\ude00", "\\\\ud800", "\\u00e4"])
def test_whole_characters_and_escaped_backslashes_are_not_halves(text):
    assert decode_json(f'"{text}"'.encode())
    with pytest.raises(RequestError) as caught:
        decode_json(f'"{text}'.encode())
    assert "half a character" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 0), ("top_p", 1), ("n", 2), ("presence_penalty", 1), ("frequency_penalty", -1)],
)
def test_strict_kimi_refuses_in_the_published_words(name, value):
    error = refused({**BASE, name: value}, strict_kimi=True)
    assert error.param == name
    if name == "temperature":
        assert error.message == "invalid temperature: only 1 is allowed for this model"
    fixed = {"temperature": 1, "top_p": 0.95, "n": 1, "presence_penalty": 0, "frequency_penalty": 0.0}
    assert parse({**BASE, **fixed}, strict_kimi=True).temperature == 1


def test_missing_reasoning_is_warned_of_by_index():
    bare = calling(call())
    del bare["reasoning_content"]
    messages = [USER, bare, result(), USER, bare, result()]
    warned = parse({**BASE, "messages": messages}, passback="warn").warnings
    assert warned == ("reasoning_content is missing in assistant tool call message at index 1, 4",)


def test_ids_may_begin_anew_in_every_turn():
    """B32: the same id, twice, with other arguments: each result belongs to the call before it."""
    first, second = calling(call("f:0", arguments='{"x": 1}')), calling(call("f:0", arguments='{"x": 2}'))
    messages = parse({**BASE, "messages": [USER, first, result("f:0"), second, result("f:0")]}).messages
    assert [m.tool_calls[0].arguments for m in messages if m.tool_calls] == ['{"x": 1}', '{"x": 2}']


def test_a_turn_of_thought_alone_is_kept():
    """B53: an interrupted turn is a message with its reasoning; B17: the field survives."""
    thought = {"role": "assistant", "reasoning_content": "hm"}
    assert parse({**BASE, "messages": [USER, thought, USER]}).messages[1].to_dict() == thought
