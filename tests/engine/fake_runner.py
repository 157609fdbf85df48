"""A model whose logits hash all that its slot and blocks hold, so that no mistake in handling them hides.

Every token leaves in its block the token itself and the hash of the whole sequence up to it; the slot holds
that hash and the position.  Logits mix the slot with all that the blocks hold.
"""

from hashlib import blake2b

import numpy as np

from gossamer.engine.runner import Segment

MASK = 2**64 - 1
START = 0x9E3779B97F4A7C15
POISON = (-1, 0)


class Misuse(AssertionError):
    """The engine broke the runner's contract."""


def chain(state: int, token: int) -> int:
    """The hash of a sequence with one token more."""
    state = (state ^ (token + 0x51_7C_C1)) * 0xBF58476D1CE4E5B9 & MASK
    return state ^ (state >> 29)


def seen(segment: Segment) -> list[int]:
    """What the model sees at each place: the token, or a number that names the row it has instead."""
    tokens, given = list(segment.token_ids), set()
    for place, rows in segment.embeddings:
        for index, row in enumerate(rows, place):
            if not 0 <= index < len(tokens) or index in given or row.shape != (FakeRunner.hidden_size,):
                raise Misuse(f"a row {row.shape} at place {index} of {len(tokens)}")
            given.add(index)
            tokens[index] = int.from_bytes(blake2b(row.tobytes(), digest_size=7).digest(), "little") + 1000
    return tokens


class FakeRunner:
    """See the module and `gossamer.engine.runner.Runner`."""

    vocab_size = 13
    hidden_size = 2
    block_bytes_per_token = 16

    def __init__(self, *, num_blocks=16, num_slots=4, block_size=4, max_context=64):
        self.num_blocks, self.num_slots = num_blocks, num_slots
        self.block_size, self.max_context = block_size, max_context
        self.block_bytes, self.slot_bytes = block_size * self.block_bytes_per_token, 16
        self.blocks = [[POISON] * block_size for _ in range(num_blocks)]
        self.slots = [None] * num_slots
        self.batches: list[list[Segment]] = []
        self.before_run = lambda segments: None

    @property
    def num_computed_tokens(self):
        return sum(len(s.token_ids) for batch in self.batches for s in batch)

    def run(self, segments):
        segments = list(segments)
        self.before_run(segments)
        self._check(segments)
        self.batches.append(segments)
        rows = [row for segment in segments if (row := self._segment(segment)) is not None]
        return np.array(rows, np.float32).reshape(len(rows), self.vocab_size)

    def _check(self, segments):
        if not segments:
            raise Misuse("an empty batch")
        if len({segment.slot for segment in segments}) != len(segments):
            raise Misuse("two segments share a slot")
        written = [block for s in segments for block in list(s.blocks)[s.start // self.block_size :]]
        for segment in segments:
            if sum(block in written for block in segment.blocks) > len(
                list(segment.blocks)[segment.start // self.block_size :]
            ):
                raise Misuse("a block is written that another segment reads")
        if len(set(written)) != len(written):
            raise Misuse("a block is written twice")

    def _segment(self, segment):
        size, end = self.block_size, segment.start + len(segment.token_ids)
        if not segment.token_ids or end > self.max_context:
            raise Misuse(f"segment {segment.start}..{end} of at most {self.max_context}")
        if len(segment.blocks) * size < end or len(set(segment.blocks)) != len(segment.blocks):
            raise Misuse(f"{len(segment.blocks)} blocks for {end} tokens")
        if self.slots[segment.slot] is None:
            raise Misuse(f"slot {segment.slot} was neither cleared nor restored")
        position, state = self.slots[segment.slot]
        if position != segment.start:
            raise Misuse(f"slot {segment.slot} is at {position}, the segment starts at {segment.start}")
        held = START
        for index in range(segment.start):
            token, after = self.blocks[segment.blocks[index // size]][index % size]
            held = chain(held, token)
            if held != after:
                raise Misuse(
                    f"position {index} of block {segment.blocks[index // size]} is another sequence's"
                )
        if held != state:
            raise Misuse(f"slot {segment.slot} and its blocks hold different sequences")
        for index, token in enumerate(seen(segment), segment.start):
            state = chain(state, token)
            self.blocks[segment.blocks[index // size]][index % size] = (token, state)
        self.slots[segment.slot] = (end, state)
        return self._logits(segment, end, state) if segment.want_logits else None

    def _logits(self, segment, end, state):
        mixed = state
        for index in range(end):
            token, after = self.blocks[segment.blocks[index // self.block_size]][index % self.block_size]
            mixed = chain(mixed ^ after, token)
        return [(chain(mixed, 1000 + token) >> 40) / 2**22 for token in range(self.vocab_size)]

    def clear_slot(self, slot):
        self.slots[slot] = (0, START)

    def save_slot(self, slot):
        return np.array(self.slots[slot], np.uint64).view(np.uint8)

    def restore_slot(self, slot, snapshot):
        position, state = np.asarray(snapshot).view(np.uint64)
        self.slots[slot] = (int(position), int(state))

    def read_block(self, block):
        pairs = [(token & MASK, state) for token, state in self.blocks[block]]
        return np.array(pairs, np.uint64).reshape(-1).view(np.uint8)

    def write_block(self, block, data):
        pairs = np.asarray(data).view(np.uint64).reshape(self.block_size, 2)
        self.blocks[block] = [(int(token), int(state)) for token, state in pairs]

    def expert_loads(self):
        return np.zeros((1, 1), np.int64)
