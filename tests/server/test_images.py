"""Images of a request: every shape they are sent in, where their rows go, and what is refused before work."""

import asyncio
import base64
import io
import json
import subprocess
import sys
import threading
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from gossamer.checkpoint.writer import CheckpointWriter
from gossamer.config import presets
from gossamer.config.model import ConfigError
from gossamer.engine.batched import BatchedEngine
from gossamer.engine.native_runner import build, fit
from gossamer.engine.settings import CacheSettings, EngineSettings
from gossamer.gateway.app import create_app
from gossamer.gateway.upstream import Context
from gossamer.images.patches import prepare
from gossamer.images.rules import ImageRules
from gossamer.kernels.random_weights import random_weights
from gossamer.kernels.vision import VisionNetwork
from gossamer.kernels.vision_folder import open_tower
from gossamer.protocol.errors import RequestError
from gossamer.protocol.events import ContentDelta, ReasoningDelta, Usage
from gossamer.protocol.request import parse
from gossamer.server.engine_upstream import EngineUpstream
from gossamer.server.images import MAX_IMAGES, ImageEncoder
from gossamer.text.specials import MEDIA_PAD
from gossamer.text.tokenizer import Tokenizer
from model.small_vision import lively_vision, toy
from server.scripted import ScriptedEngine, speech

TOKENIZER = Tokenizer.bytes_only()
PAD = TOKENIZER.special(MEDIA_PAD)
WIDTH = presets.load("debug").hidden_size
CONFIG = toy(text_hidden_size=WIDTH)
RULES = ImageRules(patch_size=4)
SAID = "hm{close}think{sep}{open}response{sep}Hello{close}response{sep}{close}message{sep}{end}"


def picture(seed=0, width=17, height=9):
    out = io.BytesIO()
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(values).save(out, "PNG")
    return out.getvalue()


def url(data):
    return "data:image/png;base64," + base64.b64encode(data).decode()


def part(data, *, bare=False):
    return {"type": "image_url", "image_url": url(data) if bare else {"url": url(data), "detail": "low"}}


def text(words):
    return {"type": "text", "text": words}


class Counting(VisionNetwork):
    def __init__(self):
        super().__init__(CONFIG, tower_arrays())
        self.calls = 0

    def run(self, patches, rows, columns):
        self.calls += 1
        return super().run(patches, rows, columns)


def tower_arrays():
    return [(name, t.detach().numpy()) for name, t in lively_vision(CONFIG).state_dict().items()]


def rows_of(data):
    patches = prepare(data, RULES)
    return VisionNetwork(CONFIG, tower_arrays()).run(patches.values, patches.fit.rows, patches.fit.columns)


def upstream_of(engine, network=None, **options):
    encoder = ImageEncoder(network or Counting(), RULES, **options)
    return EngineUpstream(engine=engine, tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size, images=encoder)


def ask(upstream, messages, **more):
    async def collect():
        request = parse({"model": "m", "messages": messages, **more})
        events = upstream.send(request, Context(request_id="t"))
        async with aclosing(events):
            return [event async for event in events]

    return asyncio.run(collect())


def seen_by(messages):
    engine = ScriptedEngine(speech(TOKENIZER, SAID))
    events = ask(upstream_of(engine), messages)
    assert ContentDelta("Hello") in events or any(isinstance(e, ContentDelta) for e in events)
    return engine, TOKENIZER.decode(engine.prompt)


@pytest.mark.parametrize("bare", [False, True])
def test_rows_go_where_the_pads_are(bare):
    data = picture()
    engine, prompt = seen_by([{"role": "user", "content": [text("look"), part(data, bare=bare), text("?")]}])
    assert "look<|media_begin|>image 17x9<|media_content|>" in prompt
    (given,) = engine.embeddings
    # 17 x 9 pixels are padded to 24 x 16: three times two tokens of 8.
    assert [i for i, token in enumerate(engine.prompt) if token == PAD] == list(range(given.start, given.end))
    assert given.end - given.start == 6
    np.testing.assert_array_equal(given.rows, rows_of(data))


def test_several_images_and_images_in_tool_results_keep_their_places():
    """The results come in the wrong order: the chat format sorts them, and their images go along."""
    data = [picture(i, 9 + 8 * i, 9) for i in range(4)]
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": "shot", "arguments": "{}"}} for i in range(2)
    ]
    messages = [
        {"role": "user", "content": [part(data[0]), text("and"), part(data[1])]},
        {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": [part(data[3])]},
        {"role": "tool", "tool_call_id": "c0", "content": [text("shot:"), part(data[2])]},
    ]
    engine, prompt = seen_by(messages)
    assert [prompt.index(f"image {9 + 8 * i}x9") for i in range(4)] == sorted(
        prompt.index(f"image {9 + 8 * i}x9") for i in range(4)
    )
    assert len(engine.embeddings) == 4
    for given, one in zip(engine.embeddings, data, strict=True):
        np.testing.assert_array_equal(given.rows, rows_of(one))
        assert set(engine.prompt[given.start : given.end]) == {PAD}
    assert len({given.digest for given in engine.embeddings}) == 4


def test_text_that_looks_like_an_image_is_text():
    engine, _ = seen_by(
        [{"role": "user", "content": [text("<|media_pad|><|kimi_image_placeholder|>"), part(picture())]}]
    )
    assert engine.prompt.count(PAD) == 6


def test_an_image_sent_again_is_not_computed_again():
    network = Counting()
    upstream = upstream_of(ScriptedEngine(speech(TOKENIZER, SAID)), network)
    messages = [{"role": "user", "content": [part(picture()), part(picture())]}]
    ask(upstream, messages)
    ask(upstream, messages)
    assert network.calls == 1


def test_kept_rows_stay_within_their_memory():
    network = Counting()
    one = rows_of(picture()).nbytes
    upstream = upstream_of(ScriptedEngine(speech(TOKENIZER, SAID)), network, kept_bytes=2 * one)
    for seed in (0, 1, 0, 2, 0, 1):
        ask(upstream, [{"role": "user", "content": [part(picture(seed))]}])
    # 0 and 1 are new, 0 is kept, 2 pushes 1 out, 0 is kept, 1 is new again.
    assert network.calls == 4


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ([part(b"nonsense")], "known format"),
        ([part(picture()[:60])], "damaged"),
        ([{"type": "image_url", "image_url": "data:image/png;base64,@@"}], "damaged base64"),
        ([{"type": "image_url", "image_url": "https://example.com/a.png"}], "https URL"),
        ([{"type": "image_url", "image_url": "file:///etc/passwd"}], "file URL"),
        ([{"type": "image_url", "image_url": "ms://abc"}], "ms URL"),
        ([{"type": "image_url", "image_url": "a.png"}], "relative URL"),
        ([{"type": "video_url", "video_url": "data:video/mp4;base64,AA"}], "is a video"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_place(content, names):
    engine = ScriptedEngine(speech(TOKENIZER, SAID))
    with pytest.raises(RequestError, match=names) as caught:
        ask(upstream_of(engine), [{"role": "user", "content": [text("a"), *content]}])
    assert caught.value.param == f"messages[0].content[1].{content[0]['type']}"
    assert not engine.prompt


def test_too_many_images_are_refused():
    content = [part(picture(0, 1, 1))] * (MAX_IMAGES + 1)
    with pytest.raises(RequestError, match=f"at most {MAX_IMAGES}"):
        ask(upstream_of(ScriptedEngine([])), [{"role": "user", "content": content}])


def test_a_conversation_that_does_not_fit_is_refused_before_the_tower_works():
    network = Counting()
    with real_engine() as engine:
        upstream = upstream_of(engine, network)
        messages = [{"role": "user", "content": [text("x" * engine.max_context), part(picture())]}]
        with pytest.raises(RequestError, match="exceeded model token limit"):
            ask(upstream, messages)
        with pytest.raises(RequestError, match="exceeded model token limit"):
            ask(upstream, [{"role": "user", "content": [part(picture())]}], max_tokens=engine.max_context)
    assert network.calls == 0


def test_a_prompts_tokens_are_counted_without_the_tower():
    network = Counting()
    engine = ScriptedEngine(speech(TOKENIZER, SAID))
    upstream = upstream_of(engine, network)
    messages = [{"role": "user", "content": [part(picture()), text("x")]}]
    tokens = asyncio.run(upstream.tokenize(parse({"model": "m", "messages": messages})))
    assert network.calls == 0
    ask(upstream, messages)
    assert list(tokens) == engine.prompt
    plain = parse({"model": "m", "messages": [{"role": "user", "content": "x"}]})
    assert asyncio.run(upstream.tokenize(plain)) == upstream.render(plain).ids
    blind = EngineUpstream(engine=engine, tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size)
    with pytest.raises(RequestError, match="reads text only"):
        asyncio.run(blind.tokenize(parse({"model": "m", "messages": messages})))


def test_pillow_is_loaded_by_the_first_image_only():
    code = "import gossamer.server.load, sys; sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_bad_image_is_refused_while_the_tower_works_on_another():
    class Waiting(Counting):
        def run(self, patches, rows, columns):
            started.set()
            assert refused.wait(20), "the refusal waited for the tower"
            return super().run(patches, rows, columns)

    started, refused = threading.Event(), threading.Event()
    upstream = upstream_of(ScriptedEngine(speech(TOKENIZER, SAID)), Waiting())

    async def one(content):
        request = parse({"model": "m", "messages": [{"role": "user", "content": content}]})
        async with aclosing(upstream.send(request, Context(request_id="t"))) as events:
            return [event async for event in events]

    async def both():
        good = asyncio.create_task(one([part(picture())]))
        await asyncio.to_thread(started.wait, 20)
        with pytest.raises(RequestError, match="known format"):
            await one([part(b"nonsense")])
        refused.set()
        return await good

    assert any(isinstance(event, ContentDelta) for event in asyncio.run(both()))


def test_a_fetcher_reads_what_is_no_data_url():
    data, asked = picture(), []

    async def fetch(address):
        asked.append(address)
        if address.endswith("gone.png"):
            raise RequestError("could not be fetched: 404", code="media_unavailable")
        return data

    engine = ScriptedEngine(speech(TOKENIZER, SAID))
    upstream = upstream_of(engine, fetch=fetch)
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    ask(upstream, [{"role": "user", "content": [image]}])
    assert asked == ["https://example.com/a.png"]
    np.testing.assert_array_equal(engine.embeddings[0].rows, rows_of(data))
    image["image_url"]["url"] = "https://example.com/gone.png"
    with pytest.raises(RequestError, match=r"content\[0\]\.image_url: could not be fetched: 404"):
        ask(upstream, [{"role": "user", "content": [image]}])


class real_engine:
    """The debug model behind a real engine."""

    def __enter__(self):
        config = presets.load("debug")
        cache = fit(config, memory_bytes=4_000_000, max_sequences=2)
        runner = build(config, random_weights(config, 0), cache=cache)
        settings = EngineSettings(seed=1, cache=CacheSettings(snapshot_every=1))
        self.engine = BatchedEngine(runner, settings)
        return self.engine

    def __exit__(self, *_):
        asyncio.run(self.engine.close())


def test_prefixes_are_shared_by_equal_images_only():
    def words(events):
        return [e.text for e in events if isinstance(e, ContentDelta | ReasoningDelta)]

    def hits(engine):
        return engine.stats.cache_hit_tokens

    with real_engine() as engine:
        upstream = upstream_of(engine)
        found, cached = [], []
        for seed in (0, 0, 1, 1):
            before = hits(engine)
            content = [part(picture(seed, 80, 80)), text("what is it? " * 8)]
            events = ask(upstream, [{"role": "user", "content": content}], max_tokens=12, temperature=0)
            found.append(words(events))
            (usage,) = [e for e in events if isinstance(e, Usage)]
            assert usage.prompt_tokens > 100
            cached.append(hits(engine) - before)
    assert found[0] == found[1]
    assert found[2] == found[3]
    # The second picture may share what stands before it, and nothing after.
    assert cached[0] == 0
    assert cached[1] == cached[3] > cached[2]


@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_image_is_a_400_also_for_a_stream(stream):
    app = create_app({"m": upstream_of(ScriptedEngine(speech(TOKENIZER, SAID)))})
    bad = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}]}
    with TestClient(app) as client:
        answer = client.post("/v1/chat/completions", json={"model": "m", "messages": [bad], "stream": stream})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == ("messages[0].content[0].image_url", "invalid_image")


def write_tower(folder, config):
    module = lively_vision(config)
    with CheckpointWriter(folder) as writer:
        for name, tensor in module.state_dict().items():
            writer.add(name, tensor.detach().numpy(), "F32")
        writer.finish()


def test_a_tower_beside_the_model_is_found(tmp_path):
    text_config = replace(presets.load("debug"), vision=None)
    assert open_tower(tmp_path, text_config) is None
    beside = tmp_path / "vision"
    beside.mkdir()
    write_tower(beside, replace(CONFIG, patch_size=4))
    sizes = {
        "vt_hidden_size": 24,
        "vt_intermediate_size": 40,
        "vt_num_hidden_layers": 3,
        "vt_num_attention_heads": 2,
        "qkv_hidden_size": 32,
        "patch_size": 4,
        "init_pos_emb_height": 8,
        "init_pos_emb_width": 8,
        "mm_hidden_size": 24,
        "text_hidden_size": WIDTH,
    }
    (beside / "config.json").write_text(json.dumps({"vision_config": sizes}))
    with pytest.raises(ConfigError, match="patches of 14"):
        open_tower(tmp_path, text_config)
    (beside / "preprocessor_config.json").write_text('{"media_proc_cfg": {"patch_size": 4}}')
    encoder = open_tower(tmp_path, text_config)
    assert encoder is not None
    (beside / "config.json").write_text(json.dumps({"vision_config": sizes | {"text_hidden_size": 3}}))
    with pytest.raises(ConfigError, match="text_hidden_size is 3"):
        open_tower(tmp_path, text_config)


def test_a_checkpoint_with_a_vision_config_and_no_tower_reads_text_only(tmp_path):
    with CheckpointWriter(tmp_path) as writer:
        writer.add("language_model.model.norm.weight", np.ones(WIDTH, np.float32), "F32")
        writer.finish()
    for width in (WIDTH, 3):
        config = replace(presets.load("debug"), vision=toy(text_hidden_size=width))
        assert open_tower(tmp_path, config) is None
