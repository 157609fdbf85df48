"""The native network equals the definition, and its bits depend on a sequence's own tokens alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.checkpoint import CheckpointReader, CheckpointWriter
from gossamer.kernels import backend
from gossamer.kernels.network import CacheSize, Network, NetworkError, Precision, tables_of
from gossamer.kernels.weights import Weight, from_checkpoint, settled
from gossamer.model.state_dict_adapter import load_checkpoint, to_checkpoint
from gossamer.model.transformer import Transformer
from model.small import FAMILIES, debug, lively, tokens
from numerics import assert_close

BLOCK = 8


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A checkpoint of every family, and the config it was made from."""
    made = {}
    configs = {name: make() for name, make in FAMILIES.items()}
    configs["k3.1 wide"] = replace(debug(), dsa=replace(debug().dsa, top_k=3))
    for name, config in configs.items():
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        with CheckpointWriter(folder) as writer:
            for weight_name, array, dtype in to_checkpoint(lively(config, seed=3)):
                writer.add(weight_name, array, dtype)
        made[name] = (config, folder)
    return made


def network(
    made,
    *,
    dtype="f32",
    state="f32",
    threads=1,
    instructions=None,
    num_blocks=40,
    num_slots=5,
    precision=None,
):
    config, folder = made
    with CheckpointReader.open(folder) as reader:
        config = settled(config, reader)
        cache = CacheSize(
            block_size=BLOCK, num_blocks=num_blocks, num_slots=num_slots, dtype=dtype, state=state
        )
        weights = from_checkpoint(config, reader)
        return Network(
            config, weights, cache=cache, threads=threads, instructions=instructions, precision=precision
        )


def definition(made, **options):
    config, folder = made
    with CheckpointReader.open(folder) as reader:
        config = settled(config, reader)
        packed = any(name.endswith("weight_packed") for name in reader.names())
        model = Transformer(config, experts="packed" if packed else "dense", seed=None, **options)
        load_checkpoint(model, reader)
    return model.eval()


class Sequence:
    """One sequence in a slot and some blocks; `feed` runs its next tokens."""

    def __init__(self, net, ids, slot, blocks):
        self.net, self.ids, self.slot, self.blocks, self.position = net, list(ids), slot, list(blocks), 0
        net.clear_slot(slot)

    def span(self, count):
        found = [count, self.position, self.slot, len(self.blocks), 1]
        part = self.ids[self.position : self.position + count]
        assert len(part) == count
        self.position += count
        return found, part

    def feed(self, count):
        return together([(self, count)])[0]


def together(parts):
    """One pass over several sequences; a row of logits each."""
    spans, ids = zip(*(sequence.span(count) for sequence, count in parts), strict=True)
    return parts[0][0].net.run(
        np.array([i for some in ids for i in some], np.int64),
        np.array(spans, np.int64),
        tables_of([sequence.blocks for sequence, _ in parts]),
    )


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("family", [*FAMILIES, "k3.1 wide"])
def test_logits_equal_the_definition(folders, family, instructions):
    made = folders[family]
    ids = tokens(made[0], 1, 70, seed=5)
    with torch.inference_mode():
        want = definition(made)(ids)[0]
    sequence = Sequence(network(made, instructions=instructions), ids[0].tolist(), 2, range(20, 29))
    got = torch.from_numpy(np.stack([sequence.feed(n) for n in (9, 1, 1, 30, 24, 5)]))
    rows = np.cumsum([9, 1, 1, 30, 24, 5]) - 1
    assert_close(got, want[rows], ("model", "float32", "native"), family)


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("mode", [("bf16", "f32"), ("fp8", "f32"), ("f32", "bf16")], ids="-".join)
@pytest.mark.parametrize("family", FAMILIES)
def test_rounded_caches_stay_near(folders, family, mode, instructions):
    made, (dtype, state) = folders[family], mode
    ids = tokens(made[0], 1, 40, seed=6)[0].tolist()
    exact, rounded = (
        Sequence(network(made, instructions=instructions, **form), ids, 0, range(5)).feed(40)
        for form in ({}, {"dtype": dtype, "state": state})
    )
    assert not np.array_equal(exact, rounded)
    key = ("model", "float32", "bf16 state" if state == "bf16" else f"{dtype} cache")
    assert_close(torch.from_numpy(rounded), torch.from_numpy(exact), key, family)


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("family", ["k3", "k3.1"])
def test_mxfp8_activations_equal_the_definition_s(folders, family, instructions):
    made = folders[family]
    ids = tokens(made[0], 1, 40, seed=9)
    with torch.inference_mode():
        want = definition(made, mxfp8_activations=True)(ids)[0]
    net = network(made, instructions=instructions, precision=Precision(activations="mxfp8"))
    got = Sequence(net, ids[0].tolist(), 0, range(5)).feed(40)
    # A value that lies on the edge between two codes may fall to either side.
    assert_close(torch.from_numpy(got), want[-1], ("model", "float32", "mxfp8"), family)


def relative_rms(near, exact):
    print("relative RMS", ratio := float(np.sqrt(np.mean((near - exact) ** 2) / np.mean(exact**2))))
    return ratio


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("precision", [Precision(activations="int8"), Precision(trunk="int8")])
def test_int8_stays_near(folders, precision, instructions):
    made = folders["k3.1"]
    ids = tokens(made[0], 1, 40, seed=6)[0].tolist()
    exact, near = (
        Sequence(network(made, precision=p, instructions=instructions), ids, 0, range(5)).feed(40)
        for p in (None, precision)
    )
    assert not np.array_equal(exact, near)
    assert_close(
        torch.from_numpy(near), torch.from_numpy(exact), ("model", "float32", "int8"), str(precision)
    )
    # The bound on single logits is wide, because one of them may be small; the whole row is held closer.
    assert relative_rms(near, exact) < (0.04 if precision.trunk == "stored" else 0.1)


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("family", ["k3.1", "kimi-linear"])
def test_bf16_inputs_stay_near(folders, family, instructions):
    made = folders[family]
    ids = tokens(made[0], 1, 40, seed=6)[0].tolist()
    exact, near = (
        Sequence(network(made, precision=p, instructions=instructions), ids, 0, range(5)).feed(40)
        for p in (None, Precision(activations="bf16"))
    )
    assert not np.array_equal(exact, near)
    assert_close(torch.from_numpy(near), torch.from_numpy(exact), ("model", "float32", "bf16 inputs"), family)
    # In the sparse family a rounded score may choose another row.
    assert relative_rms(near, exact) < (0.1 if family == "k3.1" else 0.02)


def test_rounded_inputs_of_experts_that_are_not_packed_are_refused(folders):
    with pytest.raises(NetworkError, match=r"activations 'int8' want experts packed as MXFP4"):
        network(folders["kimi-linear"], precision=Precision(activations="int8"))


def test_an_unknown_precision_is_named():
    with pytest.raises(NetworkError, match=r"activations must be one of exact, bf16, mxfp8, int8, got 'fp4'"):
        Precision(activations="fp4")


@given(
    data=st.data(),
    family=st.sampled_from([*FAMILIES, "k3.1 wide"]),
    threads=st.sampled_from([1, 2, 3]),
    instructions=st.sampled_from(backend.available() or [None]),
    precision=st.sampled_from(
        [
            Precision(),
            Precision(activations="mxfp8"),
            Precision(activations="bf16"),
            Precision(activations="bf16", trunk="int8"),
            Precision(activations="int8"),
            Precision(activations="int8", trunk="int8"),
        ]
    ),
    form=st.sampled_from([{}, {"dtype": "fp8", "state": "bf16"}]),
)
def test_bits_depend_on_the_sequence_alone(folders, data, family, threads, instructions, precision, form):
    """Whatever shares the pass, however the tokens are split, wherever they lie, by however many threads."""
    made = folders[family]
    config = made[0]
    if not config.has_packed_experts and precision.activations != "bf16":
        precision = Precision(trunk=precision.trunk)
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    ids = [tokens(config, 1, n, seed=7 + i)[0].tolist() for i, n in enumerate(lengths)]
    alone = network(made, precision=precision, instructions=instructions, **form)
    want = [Sequence(alone, some, 0, range(5)).feed(len(some)) for some in ids]

    net = network(made, threads=threads, precision=precision, instructions=instructions, **form)
    order = data.draw(st.permutations(range(40)))
    places = [order[5 * i : 5 * i + 5] for i in range(len(ids))]
    slots = data.draw(st.permutations(range(5)))
    sequences = [Sequence(net, some, slots[i], places[i]) for i, some in enumerate(ids)]
    got = [None] * len(ids)
    while open_ones := [i for i, s in enumerate(sequences) if s.position < len(s.ids)]:
        chosen = data.draw(st.lists(st.sampled_from(open_ones), min_size=1, unique=True))
        parts = []
        for i in chosen:
            left = len(ids[i]) - sequences[i].position
            parts.append((sequences[i], data.draw(st.integers(1, left))))
        for i, row in zip(chosen, together(parts), strict=True):
            got[i] = row
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mode", [("f32", "f32"), ("bf16", "f32"), ("fp8", "bf16")], ids="-".join)
def test_saved_slots_and_blocks_bring_a_sequence_back(folders, mode):
    dtype, state = mode
    made = folders["k3.1"]
    ids = tokens(made[0], 1, 30, seed=8)[0].tolist()
    net = network(made, dtype=dtype, state=state)
    whole = Sequence(net, ids, 0, range(4))
    want = whole.feed(30)
    first = Sequence(net, ids, 1, range(4, 8))
    first.feed(17)
    slot, blocks = net.save_slot(1), [net.read_block(b) for b in range(4, 8)]
    assert slot.size == net.slot_bytes
    assert blocks[0].size == net.block_bytes
    Sequence(net, ids[::-1], 1, range(4, 8)).feed(30)  # overwrites everything

    other = network(made, dtype=dtype, state=state)
    other.restore_slot(3, slot)
    for block, data in zip((30, 2, 9, 4), blocks, strict=True):
        other.write_block(block, data)
    back = Sequence(other, ids, 4, (30, 2, 9, 4))
    back.slot, back.position = 3, 17
    np.testing.assert_array_equal(back.feed(13), want)


def test_expert_loads_count_every_token(folders):
    made = folders["k3.1"]
    net = network(made)
    Sequence(net, tokens(made[0], 1, 21, seed=9)[0].tolist(), 0, range(3)).feed(21)
    loads = net.expert_loads()
    config = made[0]
    for layer in range(config.num_layers):
        expected = 21 * config.moe.experts_per_token if config.is_moe_layer(layer) else 0
        assert loads[layer].sum() == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spans": [[3, 0, 9, 1, 1]]}, "slot 9"),
        ({"spans": [[3, 0, -1, 1, 1]]}, "slot -1"),
        ({"spans": [[0, 0, 0, 1, 1]]}, "no tokens"),
        ({"spans": [[3, 6, 0, 1, 1]]}, "block table is too short"),
        ({"spans": [[3, 0, 0, 2, 1]]}, "block table is too short"),
        ({"spans": [[2, 0, 0, 1, 1]]}, "do not fit"),
        ({"spans": [[1, 0, 0, 1, 1], [2, 0, 0, 1, 1]], "tables": [0, 1]}, "slot 0 is taken"),
        ({"tables": [40]}, "block 40"),
        ({"tables": [-1]}, "block -1"),
        ({"ids": [1, 2, 320]}, "token 320"),
        ({"ids": [-1, 2, 3]}, "token -1"),
    ],
)
def test_passes_that_do_not_fit_are_refused(folders, change, message):
    net = network(folders["k3.1"])
    ids = np.array(change.get("ids", [1, 2, 3]), np.int64)
    spans = np.array(change.get("spans", [[3, 0, 0, 1, 1]]), np.int64)
    with pytest.raises(NetworkError, match=message):
        net.run(ids, spans, np.array(change.get("tables", [0]), np.int32))


def test_weights_that_do_not_fit_are_named(folders):
    config, folder = folders["k3"]
    with CheckpointReader.open(folder) as reader:
        weights = list(from_checkpoint(settled(config, reader), reader))
        cache = CacheSize(num_blocks=1, num_slots=1)
        name = "model.layers.0.self_attn.q_proj"
        with pytest.raises(NetworkError, match=f"weight {name} is missing"):
            Network(config, [w for w in weights if w.name != name], cache=cache)
        changed = [w if w.name != name else Weight(name=name, kind=w.kind, data=w.data[:-1]) for w in weights]
        with pytest.raises(NetworkError, match=rf"{name} has shape \[63, 64\], the model needs \[64, 64\]"):
            Network(config, changed, cache=cache)


@pytest.mark.parametrize(
    "size", [{"num_blocks": 0}, {"num_slots": 0}, {"block_size": 0}, {"dtype": "f16"}, {"state": "f16"}]
)
def test_caches_that_hold_nothing_are_refused(size):
    with pytest.raises(NetworkError, match=next(iter(size))):
        CacheSize(**{"num_blocks": 1, "num_slots": 1, **size})


def test_no_threads_are_refused(folders):
    with pytest.raises(NetworkError, match="threads must be at least 1"):
        network(folders["k3"], threads=0)
