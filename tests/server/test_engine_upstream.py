import asyncio
from dataclasses import replace

import pytest

from gossamer.engine.api import ContextLengthError, EngineError, SubmitError, TokenEvent
from gossamer.engine.batched import QueueFullError
from gossamer.gateway.upstream import Context, Meter
from gossamer.protocol.errors import ApiError, RequestError
from gossamer.protocol.events import Finish, PromptUsage
from gossamer.protocol.openai import Envelope, ResponseWriter
from gossamer.protocol.request import parse
from gossamer.server.engine_upstream import EngineUpstream
from gossamer.text.tokenizer import Tokenizer
from server.scripted import ScriptedEngine, speech

TOKENIZER = Tokenizer.bytes_only()
THINK = "hm{close}think{sep}{open}response{sep}"
END = "{close}response{sep}{close}message{sep}{end}"
CALL = (
    '{open}call tool="f" index="%d"{sep}{open}argument key="x" type="number"{sep}1{close}argument{sep}'
    "{close}call{sep}"
)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "hi"}


def body(**extra):
    return {"model": "m", "messages": [USER], **extra}


def answer(said, tree=None, *, error=None):
    engine = ScriptedEngine(speech(TOKENIZER, said), error=error)
    upstream = EngineUpstream(engine=engine, tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size + 2)
    writer = ResponseWriter(Envelope(id="i", model="m", created=0))

    async def collect():
        events = []
        async for event in upstream.send(parse(tree or body()), Context(request_id="t")):
            events.append(event)
            writer.write(event)
        return events

    events = asyncio.run(collect())
    return events, writer.response(), engine


def choice_of(said, tree=None):
    response = answer(said, tree)[1]
    choice = response["choices"][0]
    return choice["message"], choice["finish_reason"], response["usage"]


def test_reasoning_content_and_usage():
    message, finish, usage = choice_of(THINK + "Hello" + END)
    assert (message["reasoning_content"], message["content"], finish) == ("hm", "Hello", "stop")
    num_spoken = len(speech(TOKENIZER, THINK + "Hello{close}response{sep}{close}message{sep}"))
    # The message is over when it is closed: the end token after it is not waited for.
    assert usage["completion_tokens"] == num_spoken
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 2
    assert usage["prompt_tokens"] > 10


def test_calls_carry_ids_that_count_through_the_conversation():
    said = (
        THINK
        + "{close}response{sep}{open}tools{sep}"
        + CALL % 1
        + CALL % 2
        + "{close}tools{sep}{close}message{sep}"
    )
    first, finish, _ = choice_of(said, body(tools=[TOOL]))
    assert finish == "tool_calls"
    assert [(c["id"], c["function"]["arguments"]) for c in first["tool_calls"]] == [
        ("f:0", '{"x": 1}'),
        ("f:1", '{"x": 1}'),
    ]
    results = [{"role": "tool", "tool_call_id": f"f:{i}", "content": "ok"} for i in range(2)]
    again, _, _ = choice_of(said, body(tools=[TOOL], messages=[USER, first, *results]))
    assert [c["id"] for c in again["tool_calls"]] == ["f:2", "f:3"]


def test_one_call_only_when_parallel_calls_are_off():
    said = THINK + "{close}response{sep}{open}tools{sep}" + CALL % 1 + CALL % 2
    events, response, engine = answer(said, body(tools=[TOOL], parallel_tool_calls=False))
    assert len(response["choices"][0]["message"]["tool_calls"]) == 1
    assert response["choices"][0]["finish_reason"] == "tool_calls"
    assert engine.closed
    assert engine.num_spoken < len(speech(TOKENIZER, said))
    assert events


@pytest.mark.parametrize("cut", range(1, len(speech(TOKENIZER, THINK + "Hello")) + 1))
def test_truncation_anywhere_is_a_length(cut):
    _, finish, usage = choice_of(THINK + "Hello", body(max_tokens=cut))
    assert finish == "length"
    assert usage["completion_tokens"] == cut


def test_an_end_token_in_the_middle_is_a_stop():
    message, finish, _ = choice_of(THINK + "Hel{end}")
    assert (message["content"], finish) == ("Hel", "stop")


def test_stop_strings_end_content_and_the_engine():
    said = THINK + "one two three" + END
    events, response, engine = answer(said, body(stop=["two", "zzz"]))
    message = response["choices"][0]["message"]
    assert (message["content"], response["choices"][0]["finish_reason"]) == ("one ", "stop")
    assert engine.closed
    assert engine.num_spoken == len(speech(TOKENIZER, THINK + "one two"))
    assert all("t" not in getattr(event, "text", "") for event in events)


def test_stop_strings_do_not_touch_reasoning_and_release_what_they_held():
    message, finish, _ = choice_of("two" + THINK + "one tw" + END, body(stop="two"))
    assert (message["reasoning_content"], message["content"], finish) == ("twohm", "one tw", "stop")
    cut, finish, _ = choice_of(THINK + "one tw", body(stop="two"))
    assert (cut["content"], finish) == ("one tw", "length")


def test_sampling_follows_the_request():
    tree = body(max_tokens=7, temperature=0.5, top_p=0.8, seed=9)
    params = answer(THINK + "x" + END, tree)[2].params
    assert (params.max_tokens, params.temperature, params.top_p, params.seed) == (7, 0.5, 0.8, 9)
    sent = {"top_k": 40, "min_p": 0.1, "presence_penalty": 0.2, "frequency_penalty": 0.3}
    sent |= {"repetition_penalty": 1.1, "min_tokens": 3, "ignore_eos": True}
    tree = body(**sent, logit_bias={"70": 2}, logprobs=True, top_logprobs=4)
    params = answer(THINK + "x" + END, tree)[2].params
    assert {name: getattr(params, name) for name in sent} == sent
    assert (params.logit_bias, params.logprobs) == ({70: 2.0}, 4)


def test_a_closed_message_does_not_end_what_asks_for_tokens():
    said = THINK + "Hello" + END + "noise" * 4
    num_closed = len(speech(TOKENIZER, THINK + "Hello" + END))
    assert choice_of(said)[2]["completion_tokens"] == num_closed - 1
    for tree, expected in (
        (body(ignore_eos=True), num_closed + 20),
        (body(ignore_eos=True, max_tokens=num_closed + 3), num_closed + 3),
        (body(min_tokens=num_closed + 7, ignore_eos=True), num_closed + 20),
    ):
        message, finish, usage = choice_of(said, tree)
        assert (message["content"], finish) == ("Hello", "stop")
        assert usage["completion_tokens"] == expected
    # The scripted engine has no stop token to mask here: the message is closed, and the count goes on.
    said = THINK + "Hello{close}response{sep}{close}message{sep}" + "noise" * 4
    assert choice_of(said, body(min_tokens=num_closed + 7))[2]["completion_tokens"] == num_closed + 7


def test_only_ids_with_a_place_in_an_answer_can_be_sampled():
    params = answer(THINK + "x" + END)[2].params
    special = {name: TOKENIZER.special(name) for name in TOKENIZER.specials}
    allowed = {"<|end_of_msg|>", "[EOS]", "<|open|>", "<|close|>", "<|sep|>"}
    expected = {i for name, i in special.items() if name not in allowed}
    assert params.logit_mask.token_ids == expected | {TOKENIZER.vocab_size, TOKENIZER.vocab_size + 1}
    assert params.stop_token_ids == {special["<|end_of_msg|>"], special["[EOS]"]}


def test_a_partial_message_is_continued_in_its_channel():
    half = {"role": "assistant", "content": "Once upon", "partial": True}
    message, _, _ = choice_of(" a time" + END, body(messages=[USER, half]))
    assert (message["reasoning_content"], message["content"]) == ("", " a time")


def test_the_prompt_is_the_rendered_conversation():
    engine = answer(THINK + "x" + END, body(reasoning_effort="low", tools=[TOOL], tool_choice="required"))[2]
    text = TOKENIZER.decode(engine.prompt)
    assert "thinking_effort=low" in text
    assert '"name":"f"' in text
    assert "tool_choice=required" in text
    assert text.endswith("think<|sep|>")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextLengthError(max_context=5, num_prompt=9, max_tokens=None), 400, "context_length_exceeded"),
        (SubmitError("bad"), 400, "invalid_value"),
    ],
)
def test_what_the_engine_refuses_at_the_call(error, status, code):
    class Refusing(ScriptedEngine):
        def submit(self, token_ids, params, options, *, embeddings=()):
            raise error

    upstream = EngineUpstream(engine=Refusing([]), tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size)
    with pytest.raises(RequestError) as caught:
        upstream.send(parse(body()), Context(request_id="t"))
    assert (caught.value.status, caught.value.code) == (status, code)


def test_an_engine_that_breaks_midway():
    with pytest.raises(ApiError, match="damaged") as caught:
        answer("hm", error=EngineError("damaged"))
    assert (caught.value.status, caught.value.code) == (500, "engine_error")


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [("cancelled", 503, "server_shutdown"), ("deadline", 504, "deadline_exceeded")],
)
def test_an_engine_that_cuts_an_answer_off(reason, status, code):
    class Closing(ScriptedEngine):
        async def submit(self, token_ids, params, options, *, embeddings=()):
            yield TokenEvent(token_id=104, index=0)
            yield TokenEvent(token_id=None, index=1, finish_reason=reason)

    upstream = EngineUpstream(engine=Closing([]), tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size)

    async def collect():
        return [event async for event in upstream.send(parse(body()), Context(request_id="t"))]

    with pytest.raises(ApiError) as caught:
        asyncio.run(collect())
    assert (caught.value.status, caught.value.code) == (status, code)


def test_images_are_refused_by_place():
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": "data:image/png;base64,AA"}]
    with pytest.raises(RequestError, match="reads text only") as caught:
        answer("x", body(messages=[USER, {"role": "user", "content": parts}]))
    assert caught.value.param == "messages[1].content[1].image_url"


def test_leaving_early_closes_the_engine():
    engine = ScriptedEngine(speech(TOKENIZER, THINK + "Hello" + END))
    upstream = EngineUpstream(engine=engine, tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size)

    async def leave():
        events = upstream.send(parse(body()), Context(request_id="t"))
        await anext(events)
        await events.aclose()

    asyncio.run(leave())
    assert engine.closed
    assert engine.num_spoken == 1


def test_an_engine_whose_queue_is_full_is_worth_another_try():
    class Full(ScriptedEngine):
        def submit(self, token_ids, params, options, *, embeddings=()):
            raise QueueFullError(max_queue=3)

    upstream = EngineUpstream(engine=Full([]), tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size)
    with pytest.raises(ApiError, match="overloaded") as caught:
        upstream.send(parse(body()), Context(request_id="r"))
    assert (caught.value.status, caught.value.code, caught.value.retry_after_s) == (
        503,
        "engine_overloaded",
        1,
    )


def test_tokens_are_counted_as_they_come_and_tenants_kept_apart():
    async def scenario():
        engine = ScriptedEngine([104] * 9)
        upstream = EngineUpstream(engine=engine, tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size)
        meter = Meter()
        events = upstream.send(parse(body()), Context(request_id="r", meter=meter, tenant="ann"))
        await anext(events)
        assert meter.prompt_tokens == len(engine.prompt)
        assert 1 <= meter.completion_tokens < 9
        await events.aclose()
        assert (engine.options.fairness_key, engine.options.cache_salt) == ("ann", "ann")

    asyncio.run(scenario())


def test_a_smaller_context_is_refused_before_any_work_and_bounds_the_answer():
    engine = ScriptedEngine(speech(TOKENIZER, THINK + "Hello" + END))
    whole = EngineUpstream(engine=engine, tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size)
    num_prompt = len(asyncio.run(whole.tokenize(parse(body()))))
    small = replace(whole, context_limit=num_prompt + 3)
    assert small.max_context == num_prompt + 3
    text = f"Invalid request: Your request exceeded model token limit: {num_prompt + 3} "
    with pytest.raises(RequestError, match=rf"^{text}\(requested: {num_prompt + 4} ") as caught:
        small.send(parse(body(max_tokens=4)), Context(request_id="t"))
    assert caught.value.code == "context_length_exceeded"
    assert engine.params is None

    async def collect():
        return [event async for event in small.send(parse(body()), Context(request_id="t"))]

    events = asyncio.run(collect())
    assert engine.params.max_tokens == 3
    assert events[0] == PromptUsage(prompt_tokens=num_prompt)
    assert events[-1] == Finish("length")


def test_the_stop_string_that_was_met_is_named():
    events, _, _ = answer(THINK + "Hello END there" + END, body(stop=["never", "END"]))
    assert events[-1] == Finish("stop", "END")
