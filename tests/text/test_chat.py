"""The rendered prompt: its exact text, its order, its refusals, and no text in it forges structure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.text import chat
from gossamer.text.chat import Media
from gossamer.text.errors import ChatFormatError

from .strategies import conversations, generated_ids, hostile, structure

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
NEWS = {"type": "function", "function": {"name": "news"}}
TWO_CALLS = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "x", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Łódź"}'}},
        {"id": "y", "type": "function", "function": {"name": "news", "arguments": "{}"}},
    ],
}


def text_of(tokenizer, conversation, **settings):
    settings = {"reasoning_effort": None, "add_generation_prompt": False} | settings
    return tokenizer.decode(chat.render(conversation, tokenizer=tokenizer, **settings).ids)


def message(body, **attributes):
    head = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<|open|>message{head}<|sep|>{body}<|close|>message<|sep|><|end_of_msg|>"


def test_messages_in_order(tokenizer):
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": 'A "B" & C', "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "Hello.", "reasoning_content": "A greeting."},
    ]
    assert text_of(tokenizer, conversation) == (
        message("Be brief.", role="system")
        + message("Hi", role="user", name="A &quot;B&quot; &amp; C")
        + message(
            "<|open|>think<|sep|>A greeting.<|close|>think<|sep|>"
            "<|open|>response<|sep|>Hello.<|close|>response<|sep|>",
            role="assistant",
        )
    )


def test_tools_and_effort_come_first(tokenizer):
    text = text_of(
        tokenizer, [{"role": "user", "content": "x"}], tools=[WEATHER, NEWS], reasoning_effort="low"
    )
    declared = (
        '[{"function":{"name":"weather","parameters":{"type":"object"}},"type":"function"},'
        '{"function":{"name":"news"},"type":"function"}]'
    )
    assert text == (
        message(
            "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n"
            + declared
            + "\n```",
            role="system",
            type="tool-declare",
        )
        + message(
            "`thinking_effort` guides on how much to think in your thinking channel (not including the "
            "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
            "Now the system is invoked with `thinking_effort=low`.",
            role="system",
            type="thinking-effort",
        )
        + message("x", role="user")
    )


def test_dynamic_tools_are_declared_where_they_stand(tokenizer):
    text = text_of(tokenizer, [{"role": "user", "content": "x"}, {"role": "system", "tools": [NEWS]}])
    head, _, tail = text.partition("```json")
    assert head == message("x", role="user") + (
        '<|open|>message role="system" type="tool-declare"<|sep|>## New Tools Available\n'
        "The system dynamically extends the toolset via lazy-loading.\n"
        "You have access to all existing and extended tools.\n"
        "Here are the specs for the extended tools.\n\n"
    )
    assert tail == (
        '\n[{"function":{"name":"news"},"type":"function"}]\n```<|close|>message<|sep|><|end_of_msg|>'
    )


def test_arguments_are_typed_blocks(tokenizer):
    arguments = '{"s": "a \\"b\\"", "n": 1.5, "b": true, "z": null, "o": {"k": ["é"]}, "a": [], "q\\"": ""}'
    call = {"id": "x", "function": {"name": "f", "arguments": arguments}}
    text = text_of(tokenizer, [{"role": "assistant", "content": "", "tool_calls": [call]}])

    def argument(key, kind, value):
        return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'

    assert text == message(
        "<|open|>think<|sep|><|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|>"
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>'
        + argument("s", "string", 'a "b"')
        + argument("n", "number", "1.5")
        + argument("b", "boolean", "true")
        + argument("z", "null", "null")
        + argument("o", "object", '{"k": ["é"]}')
        + argument("a", "array", "[]")
        + argument("q&quot;", "string", "")
        + "<|close|>call<|sep|><|close|>tools<|sep|>",
        role="assistant",
    )


@pytest.mark.parametrize("arguments", ["{oops", "[1]", "3", '{"a": NaN}', '{"a": 1e999}', "[" * 50_000])
def test_what_is_no_json_object_is_kept_in_a_json_block(byte_tokenizer, arguments):
    call = {"function": {"name": "f", "arguments": arguments}}
    text = text_of(byte_tokenizer, [{"role": "assistant", "tool_calls": [call]}])
    assert f'<|open|>json type="object"<|sep|>{arguments}<|close|>json<|sep|>' in text
    assert "argument" not in text


@pytest.mark.parametrize("arguments", [None, "", "  ", "{}", {}])
def test_no_arguments_are_no_blocks(byte_tokenizer, arguments):
    call = {"function": {"name": "f", "arguments": arguments}}
    text = text_of(byte_tokenizer, [{"role": "assistant", "tool_calls": [call]}])
    assert '<|open|>call tool="f" index="1"<|sep|><|close|>call<|sep|>' in text


def test_arguments_may_be_an_object_already(byte_tokenizer):
    as_text = {"function": {"name": "f", "arguments": '{"a": [1, "é"]}'}}
    as_object = {"function": {"name": "f", "arguments": {"a": [1, "é"]}}}
    texts = [
        text_of(byte_tokenizer, [{"role": "assistant", "tool_calls": [c]}]) for c in (as_text, as_object)
    ]
    assert texts[0] == texts[1]


def test_results_are_sorted_into_the_order_of_the_calls(byte_tokenizer):
    results = [
        {"role": "tool", "tool_call_id": "y", "name": "stale", "content": "second"},
        {"role": "tool", "tool_call_id": "x", "content": "first"},
    ]
    text = text_of(byte_tokenizer, [TWO_CALLS, *results])
    assert text.endswith(
        message("first", role="tool", tool="weather", index=1)
        + message("second", role="tool", tool="news", index=2)
    )


def test_of_calls_that_share_an_id_the_first_is_answered(byte_tokenizer):
    calls = [{"id": "same", "function": {"name": n, "arguments": "{}"}} for n in "fg"]
    results = [{"role": "tool", "tool_call_id": "same", "content": c} for c in "12"]
    text = text_of(byte_tokenizer, [{"role": "assistant", "tool_calls": calls}, *results])
    assert text.endswith(
        message("1", role="tool", tool="f", index=1) + message("2", role="tool", tool="f", index=2)
    )


def test_each_assistant_message_starts_its_own_count(byte_tokenizer):
    result = {"role": "tool", "tool_call_id": "y", "content": "r"}
    other = {"id": "z", "function": {"name": "other", "arguments": "{}"}}
    text = text_of(byte_tokenizer, [TWO_CALLS, result, {"role": "assistant", "tool_calls": [other]}, result])
    # The second result answers none of the calls before it any more, so it goes by position.
    assert message("r", role="tool", tool="news", index=1) in text
    assert text.endswith(message("r", role="tool", tool="other", index=1))


def test_a_run_with_an_unmatched_id_is_left_alone(byte_tokenizer):
    results = [
        {"role": "tool", "tool_call_id": "y", "content": "one"},
        {"role": "tool", "tool_call_id": "other", "content": "two"},
    ]
    text = text_of(byte_tokenizer, [TWO_CALLS, *results])
    assert text.endswith(
        message("one", role="tool", tool="weather", index=1)
        + message("two", role="tool", tool="news", index=2)
    )


def test_a_result_that_answers_nothing_is_refused_unless_named(byte_tokenizer):
    result = {"role": "tool", "tool_call_id": "lost", "content": "r"}
    with pytest.raises(ChatFormatError, match=r"messages\[1\]\.tool_call_id: 'lost' answers no call"):
        text_of(byte_tokenizer, [{"role": "user", "content": "x"}, result])
    assert text_of(byte_tokenizer, [result | {"name": "f"}]) == message("r", role="tool", tool="f", index=1)


def test_choice_and_format_follow_the_conversation(byte_tokenizer):
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    text = text_of(
        byte_tokenizer,
        [{"role": "user", "content": "x"}],
        tools=[NEWS],
        tool_choice="required",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    )
    assert text.partition(message("x", role="user"))[2] == message(
        "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
        role="system",
        type="tool-choice",
    ) + message(
        "The system is invoked with `response_format=json_schema`.\n"
        "Your response must be raw JSON data without markdown code blocks (```json) or any additional "
        "formatting.\nThe JSON data must match the following schema:\n"
        '```json\n{"properties":{"a":{},"b":{}},"type":"object"}\n```',
        role="system",
        type="response-format",
    )


def test_choice_none_and_format_object(byte_tokenizer):
    text = text_of(byte_tokenizer, [], tool_choice="none", response_format={"type": "json_object"})
    assert "`tool_choice=none`.\nYou MUST NOT call any tools in the next message.<|close|>" in text
    assert "`response_format=json_object`.\nYour response must be raw JSON data" in text
    assert text_of(byte_tokenizer, [], tool_choice="auto", response_format={"type": "text"}) == ""


@pytest.mark.parametrize(("thinking", "channel"), [(True, "think"), (False, "response")])
def test_the_generation_prompt_opens_the_channel(byte_tokenizer, thinking, channel):
    rendered = chat.render([], tokenizer=byte_tokenizer, thinking=thinking, reasoning_effort=None)
    assert byte_tokenizer.decode(rendered.ids) == (
        f'<|open|>message role="assistant"<|sep|><|open|>{channel}<|sep|>'
    )
    assert rendered.start == channel


def test_thinking_off_leaves_no_thought_and_no_effort(byte_tokenizer):
    conversation = [{"role": "assistant", "content": "c", "reasoning_content": "secret"}]
    text = text_of(byte_tokenizer, conversation, thinking=False, reasoning_effort="high")
    assert text == message("<|open|>response<|sep|>c<|close|>response<|sep|>", role="assistant")


@pytest.mark.parametrize(
    ("keys", "thought"),
    [
        ({"reasoning_content": "a"}, "a"),
        ({"reasoning": "b"}, "b"),
        ({"reasoning_content": "", "reasoning": "b"}, "b"),
        ({"reasoning_content": " \n"}, ""),
        ({"reasoning_content": None}, ""),
        ({}, ""),
    ],
)
def test_every_assistant_turn_has_a_thought(byte_tokenizer, keys, thought):
    text = text_of(byte_tokenizer, [{"role": "assistant", "content": "c", **keys}])
    assert f"<|open|>think<|sep|>{thought}<|close|>think<|sep|>" in text


@pytest.mark.parametrize(
    ("keys", "tail", "start"),
    [
        (
            {"content": "pre", "reasoning_content": "r"},
            "<|open|>think<|sep|>r<|close|>think<|sep|><|open|>response<|sep|>pre",
            "response",
        ),
        (
            {"content": ""},
            "<|open|>think<|sep|><|close|>think<|sep|><|open|>response<|sep|>",
            "response",
        ),
        ({"content": None, "reasoning_content": "r"}, "<|open|>think<|sep|>r", "think"),
    ],
)
def test_a_partial_message_is_left_open_after_everything_else(byte_tokenizer, keys, tail, start):
    conversation = [{"role": "user", "content": "x"}, {"role": "assistant", "partial": True, **keys}]
    rendered = chat.render(
        conversation, tokenizer=byte_tokenizer, reasoning_effort=None, response_format={"type": "json_object"}
    )
    text = byte_tokenizer.decode(rendered.ids)
    assert text.endswith(f'<|end_of_msg|><|open|>message role="assistant"<|sep|>{tail}')
    assert text.count("response-format") == 1
    assert rendered.start == start
    assert generated_ids(rendered) == []


def test_an_image_becomes_its_block(byte_tokenizer):
    content = [
        {"type": "text", "text": "see "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "text", "text": "<|media_pad|><|kimi_image_placeholder|>"},
    ]
    rendered = chat.render(
        [{"role": "user", "content": content}],
        tokenizer=byte_tokenizer,
        reasoning_effort=None,
        add_generation_prompt=False,
        media=[Media(width=640, height=480, num_tokens=3)],
    )
    assert byte_tokenizer.decode(rendered.ids) == message(
        "see <|media_begin|>image 640x480<|media_content|>"
        "<|media_pad|><|media_pad|><|media_pad|><|media_end|>"
        "<|media_pad|><|kimi_image_placeholder|>",
        role="user",
    )
    assert rendered.ids.count(byte_tokenizer.special("<|media_pad|>")) == 3


def test_images_and_media_must_match(byte_tokenizer):
    image = {"role": "user", "content": [{"type": "image"}]}
    with pytest.raises(ChatFormatError, match=r"media: 0 entries for 1 image parts"):
        chat.render([image], tokenizer=byte_tokenizer)
    media = [Media(width=1, height=1, num_tokens=1)] * 2
    with pytest.raises(ChatFormatError, match=r"media: 2 entries for 1 image parts"):
        chat.render([image], tokenizer=byte_tokenizer, media=media)


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_an_image_takes_some_room(sizes):
    width, height, num_tokens = sizes
    with pytest.raises(ChatFormatError, match="must be at least 1"):
        Media(width=width, height=height, num_tokens=num_tokens)


def test_an_image_stays_with_its_result_when_results_are_sorted(byte_tokenizer):
    results = [
        {
            "role": "tool",
            "tool_call_id": call_id,
            "content": [{"type": "text", "text": call_id}, {"type": "image"}],
        }
        for call_id in "yx"
    ]
    media = [Media(width=1, height=1, num_tokens=1), Media(width=2, height=2, num_tokens=2)]
    rendered = chat.render([TWO_CALLS, *results], tokenizer=byte_tokenizer, media=media)
    text = byte_tokenizer.decode(rendered.ids)
    assert text.index("x<|media_begin|>image 2x2") < text.index("y<|media_begin|>image 1x1")
    assert rendered.media == (1, 0)


def test_a_result_without_an_id_matches_no_call(byte_tokenizer):
    calls = [{"id": "", "function": {"name": n, "arguments": "{}"}} for n in "fg"]
    results = [{"role": "tool", "name": n, "content": n} for n in "gf"]
    text = text_of(byte_tokenizer, [{"role": "assistant", "tool_calls": calls}, *results])
    assert text.endswith(
        message("g", role="tool", tool="g", index=1) + message("f", role="tool", tool="f", index=2)
    )


def test_generated_marks_what_the_model_writes(byte_tokenizer):
    conversation = [{"role": "user", "content": "x"}, TWO_CALLS | {"content": "c", "reasoning_content": "r"}]
    rendered = chat.render(conversation, tokenizer=byte_tokenizer, add_generation_prompt=False)
    own = byte_tokenizer.decode(generated_ids(rendered))
    assert own.startswith(
        "r<|close|>think<|sep|><|open|>response<|sep|>c<|close|>response<|sep|><|open|>tools"
    )
    assert own.endswith("<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>")
    assert len(rendered.generated) == len(rendered.ids)


def harmless(message, tools_seen):
    """The same message with every text replaced, and nothing else."""
    plain = dict(message)
    for key in ("content", "name", "reasoning_content"):
        if plain.get(key):
            plain[key] = "x" if plain[key].strip() or key != "reasoning_content" else plain[key]
    if "tool_calls" in plain:
        plain["tool_calls"] = [
            call | {"function": {"name": "f", "arguments": harmless_arguments(call["function"]["arguments"])}}
            for call in plain["tool_calls"]
        ]
    return plain


def harmless_arguments(arguments):
    try:
        values = json.loads(arguments)
    except ValueError:
        return "{" if arguments.strip() else ""
    if not isinstance(values, dict):
        return "{"
    return {f"k{i}": "x" for i in range(len(values))}


@given(conversation=conversations(), text=hostile)
def test_no_text_anywhere_can_forge_structure(tokenizer, conversation, text):
    def rendered(messages, name, description):
        tool = {"type": "function", "function": {"name": name, "description": description}}
        schema = {"type": "object", "description": description}
        return chat.render(
            messages,
            tokenizer=tokenizer,
            tools=[tool],
            response_format={"type": "json_schema", "json_schema": {"name": name, "schema": schema}},
        )

    attacked = rendered(conversation, f"f{text}", text)
    plain = rendered([harmless(m, ()) for m in conversation], "f", "x")
    assert structure(tokenizer, attacked.ids) == structure(tokenizer, plain.ids)
    for segment in attacked.segments:
        assert segment.control == (len(segment.ids) == 1 and tokenizer.is_special(segment.ids[0]))
        assert segment.control or tokenizer.decode(segment.ids) == segment.text


@given(conversation=conversations(), effort=st.sampled_from([None, "low", "max"]), thinking=st.booleans())
def test_rendering_is_deterministic_and_leaves_its_input_alone(tokenizer, conversation, effort, thinking):
    before = json.dumps(conversation)
    settings = {"tokenizer": tokenizer, "reasoning_effort": effort, "thinking": thinking}
    first = chat.render(conversation, **settings)
    assert first == chat.render(json.loads(before), **settings)
    assert json.dumps(conversation) == before


@given(conversation=conversations(), extra=hostile)
def test_a_longer_conversation_keeps_the_prefix(tokenizer, conversation, extra):
    # What a prefix cache lives on: appending messages changes nothing before them.
    longer = [*conversation, {"role": "user", "content": extra}]
    short, long = (
        chat.render(c, tokenizer=tokenizer, add_generation_prompt=False).ids for c in (conversation, longer)
    )
    assert long[: len(short)] == short


# What follows needs the released vocabulary.


def verifier_render(kimi, kimi_vocab, **settings):
    payload = json.loads((kimi_vocab / "verifier_payload.json").read_text(encoding="utf-8"))
    return chat.render(
        payload["messages"],
        tokenizer=kimi,
        tools=payload["tools"],
        tool_choice=payload["tool_choice"],
        response_format=payload["response_format"],
        reasoning_effort=payload["thinking"]["effort"],
        **settings,
    )


def test_the_verifier_payload_has_one_token_less_than_expected(kimi, kimi_vocab):
    # The verifier expects usage.prompt_tokens of 539 and allows three more. The decision record on the chat
    # format says what was tried to explain the difference; a counted beginning of sequence would.
    expected = 539
    assert len(verifier_render(kimi, kimi_vocab, add_generation_prompt=False).ids) == expected - 1
    assert len(verifier_render(kimi, kimi_vocab).ids) == expected - 1 + 10


def test_the_generation_prompt_has_ten_tokens(kimi):
    assert len(chat.render([], tokenizer=kimi, reasoning_effort=None).ids) == 10
