"""What went wrong in other servers, as answers of a scripted engine: each test names its reports.

Reports: vllm-project/vllm#51399 (B20), #54273 (B21), #50367 (B22), #38579 (B23), #45866 (B24), #43155 (B25),
#27755 (B01); BerriAI/litellm#21331 (B27), #17425 (B28); anomalyco/opencode#36316 (B34);
MoonshotAI/kimi-code#3429 (B35); shogo-labs/shogo-ai#766 (B40); Bike4Mind/bike4mind#1089 (B41).
"""

import asyncio
import json

import pytest

from gossamer.gateway.upstream import Context
from gossamer.protocol import sse
from gossamer.protocol.completion import Collector
from gossamer.protocol.openai import ChatWire, accumulate
from gossamer.protocol.request import parse
from gossamer.protocol.wire import Envelope
from gossamer.server.engine_upstream import EngineUpstream
from gossamer.text.tokenizer import Tokenizer
from server.scripted import ScriptedEngine, speech

TOKENIZER = Tokenizer.bytes_only()
ENVELOPE = Envelope(id="chatcmpl-1", model="m", created=0)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OPEN, CLOSED = "{open}response{sep}", "{close}response{sep}"
THOUGHT = "hm{close}think{sep}"
END = "{close}message{sep}{end}"


def call(index, value="1", kind="number"):
    return (
        f'{{open}}call tool="f" index="{index}"{{sep}}{{open}}argument key="x" type="{kind}"{{sep}}{value}'
        "{close}argument{sep}{close}call{sep}"
    )


def calls(*written):
    return "{open}tools{sep}" + "".join(written) + "{close}tools{sep}"


def ask(said, **extra):
    """Chunks of the stream and the whole answer, which must be the same."""
    tree = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL], **extra}
    upstream = EngineUpstream(
        engine=ScriptedEngine(speech(TOKENIZER, said)), tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size
    )

    async def collect():
        return [event async for event in upstream.send(parse(tree), Context(request_id="t"))]

    events = asyncio.run(collect())
    wire, collector = ChatWire(ENVELOPE, include_usage=True), Collector()
    for event in events:
        collector.write(event)
    data = b"".join([*(wire.write(event) for event in events), wire.end()])
    decoded = [event.data for event in sse.Decoder().feed(data)]
    assert decoded[-1] == sse.DONE
    chunks = [json.loads(data) for data in decoded[:-1]]
    whole = json.loads(json.dumps(wire.whole(collector.completion())))
    assert accumulate(chunks) == whole
    return chunks, whole["choices"][0], whole["usage"]


def test_b20_no_marker_leaks_where_a_channel_stays_open():
    _, choice, _ = ask(THOUGHT + OPEN + "Hello" + END)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Hello", "stop")


def test_b21_another_channel_ends_the_thought():
    _, choice, _ = ask("hm" + calls(call(1)) + END)
    message = choice["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", None)
    assert [c["function"]["arguments"] for c in message["tool_calls"]] == ['{"x": 1}']


def test_b22_spaces_in_a_marker_do_not_let_it_through():
    _, choice, _ = ask("hm{close} think {sep}{open} response {sep}Hello{close} response {sep}" + END)
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("hm", "Hello")


def test_b23_long_arguments_come_whole():
    text = 'ä"\\\n' * 2500
    _, choice, _ = ask(THOUGHT + OPEN + CLOSED + calls(call(1, text, "string")) + END)
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"x": text}


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
def test_b25_a_choice_is_honoured_and_reasoning_kept(choice):
    said = THOUGHT + OPEN + "Well." + CLOSED + calls(call(1)) + END
    _, answer, _ = ask(said, tool_choice=choice)
    assert answer["message"]["reasoning_content"] == "hm"
    assert answer["message"]["content"] == "Well."
    assert ("tool_calls" in answer["message"]) == (choice != "none")
    assert answer["finish_reason"] == ("stop" if choice == "none" else "tool_calls")


def test_b27_b28_parallel_calls_have_their_own_index_and_none_is_empty():
    chunks, answer, _ = ask(THOUGHT + OPEN + "Both." + CLOSED + calls(*(call(i) for i in (1, 2, 3))) + END)
    assert all(len(chunk["choices"]) <= 1 for chunk in chunks)
    deltas = [d for c in chunks for o in c["choices"] for d in o["delta"].get("tool_calls", ())]
    assert [d["index"] for d in deltas if "id" in d] == [0, 1, 2]
    assert all(d["function"].get("name") or d["function"]["arguments"] for d in deltas)
    assert len({c["id"] for c in answer["message"]["tool_calls"]}) == 3


def test_b34_calls_are_the_reason_where_there_are_any():
    _, answer, _ = ask(THOUGHT + OPEN + CLOSED + calls(call(1)) + END)
    assert answer["finish_reason"] == "tool_calls"
    _, answer, _ = ask(THOUGHT + OPEN + "No." + CLOSED + END)
    assert answer["finish_reason"] == "stop"


def test_b35_thought_alone_is_an_answer_without_text():
    _, answer, usage = ask(THOUGHT + END)
    assert (answer["message"]["content"], answer["message"]["reasoning_content"]) == ("", "hm")
    assert answer["finish_reason"] == "stop"
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 2


def test_b01_b40_b41_the_field_and_the_usage_that_clients_look_for():
    chunks, _, usage = ask(THOUGHT + OPEN + "Hi" + CLOSED + END)
    assert any("reasoning_content" in o["delta"] for c in chunks for o in c["choices"])
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], usage)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] > 0
