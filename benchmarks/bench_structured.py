"""What it costs to hold an answer to a schema: decoding with and without, in turns, in the same run.

The schema asks for a long list of objects, so that nearly every token is under the mask; free decoding runs
on past its end, so that both generate as many tokens behind the same prompt.
"""

import asyncio
import random
import statistics
import time

import numpy as np

from gossamer.engine.api import SamplingParams
from gossamer.grammar.build import Builder
from gossamer.grammar.guide import Guide, History, Masks
from gossamer.grammar.vocabulary import Vocabulary
from gossamer.protocol.request import parse
from gossamer.server.load import Loaded, load

TURNS = 7
NUM_TOKENS = 400
K3_VOCABULARY = 163_584
ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "kind": {"enum": ["file", "folder", "link", None]},
        "size": {"type": "integer", "minimum": 0},
        "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        "note": {"type": "string"},
    },
    "required": ["name", "kind", "size", "when", "tags", "note"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": ITEM, "minItems": 200}


def params(loaded: Loaded, *, constrained: bool, seed: int) -> tuple[tuple[int, ...], SamplingParams]:
    """Prompt and sampling of one request; the budget never comes into sight."""
    form = {"type": "json_schema", "json_schema": {"name": "list", "schema": SCHEMA}}
    tree = {
        "model": "nano",
        "messages": [{"role": "user", "content": "List the files."}],
        "response_format": form,
        "max_tokens": 20_000,
        "seed": seed,
    }
    upstream = loaded.upstream
    rendered = upstream.render(parse(tree))
    ids = rendered.ids
    # Straight to the answer: the thought would be free in both.
    for name in ("<|close|>", "think", "<|sep|>", "<|open|>", "response", "<|sep|>"):
        known = name in loaded.tokenizer.specials
        ids += (loaded.tokenizer.special(name),) if known else tuple(loaded.tokenizer.encode(name))
    if not constrained:
        free = {key: value for key, value in tree.items() if key != "response_format"}
        return ids, upstream.sampling_params(parse({**free, "ignore_eos": True}))
    guided = parse(
        {**tree, "messages": [*tree["messages"], {"role": "assistant", "content": "", "partial": True}]}
    )
    mask = upstream.constraints.mask(guided, upstream.render(guided), limit=20_000)
    return ids, upstream.sampling_params(guided, mask)


async def seconds_per_token(loaded: Loaded, *, constrained: bool, batch: int, turn: int) -> float:
    async def one(seed: int) -> tuple[float, float]:
        tokens = loaded.engine.submit(*params(loaded, constrained=constrained, seed=seed))
        times = []
        async for _ in tokens:
            times.append(time.perf_counter())
            if len(times) == NUM_TOKENS:
                break
        await tokens.aclose()
        return times[0], times[-1]

    spans = await asyncio.gather(*(one(turn * batch + i) for i in range(batch)))
    begin, end = max(a for a, _ in spans), min(b for _, b in spans)
    return (end - begin) / NUM_TOKENS


async def decode_rows() -> list[dict]:
    loaded = load("nano", warn=lambda text: None)
    found = []
    for batch in (1, 8):
        ratios, guided, free = [], [], []
        for turn in range(TURNS + 1):
            both = {}
            for constrained in (True, False) if turn % 2 else (False, True):
                both[constrained] = await seconds_per_token(
                    loaded, constrained=constrained, batch=batch, turn=turn
                )
            if turn:  # the first warms up
                ratios.append(both[False] / both[True])
                guided.append(batch / both[True])
                free.append(batch / both[False])
        found.append(
            {
                "name": f"structured.decode.nano.{batch}",
                "ours": statistics.median(guided),
                "peer": statistics.median(free),
                "ratio": statistics.median(ratios),
                "goal": 0.85,
                "unit": "tokens/s",
                "conditions": f"{batch} at a time, {NUM_TOKENS} tokens, median of {TURNS} turns; peer: free "
                f"decoding; ratios {min(ratios):.3f} to {max(ratios):.3f}",
            }
        )
    await loaded.engine.close()
    return found


def k3_sized() -> Vocabulary:
    """As many tokens as K3 has, of words and their pieces: its own vocabulary is not part of this package."""
    rng = random.Random(0)
    tokens = dict.fromkeys(bytes([b]) for b in range(256))
    letters = "etaoinshrdlcumwfgypbvkjxqz"
    while len(tokens) < K3_VOCABULARY:
        word = "".join(rng.choices(letters, k=rng.randint(2, 9)))
        word = (
            rng.choice(["", " ", " ", '"', "\n", "汉", "é"])
            + word
            + rng.choice(["", "", "", '"', '":', '",'])
        )
        tokens.setdefault(word.encode())
    return Vocabulary(list(tokens))


def mask_row() -> dict:
    vocabulary = k3_sized()
    builder = Builder(SCHEMA, vocabulary)
    guide = Guide(builder.json(builder.root), Masks(vocabulary))
    rng = np.random.default_rng(0)
    taken, steps = [], []
    cursor, place, history = guide.follow(), guide.start, None
    for length in range(1, 401):
        begin = time.perf_counter()
        mask = cursor.mask(history)
        middle = time.perf_counter()
        token = int(rng.choice(np.flatnonzero(mask)))
        again = time.perf_counter()
        place = place.step(vocabulary.tokens[token])
        taken.append((middle - begin) * 1e3)
        steps.append((time.perf_counter() - again) * 1e3)
        history = History(token, history, length)
    return {
        "name": "structured.mask.163k",
        "ours": statistics.median(taken),
        "peer": None,
        "ratio": None,
        "goal": None,
        "unit": "ms",
        "conditions": f"one mask over {K3_VOCABULARY} made-up tokens, median of 400; 95th percentile "
        f"{sorted(taken)[380]:.2f} ms; following a token {statistics.median(steps):.3f} ms",
    }


def rows() -> list[dict]:
    return [*asyncio.run(decode_rows()), mask_row()]
