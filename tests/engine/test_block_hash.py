"""A block's name says all that came before it, for whom and by which model."""

import numpy as np
import pytest

from gossamer.engine.api import Embeddings
from gossamer.engine.block_hash import DIGEST_BYTES, BlockHasher, root_hash


def names(tokens, num_blocks=2, *, fingerprint="model", salt=""):
    return BlockHasher(root_hash(fingerprint, salt), 3).digests(tokens, num_blocks)


def test_equal_prefixes_have_equal_names_and_others_differ_from_there_on():
    base = names([1, 2, 3, 4, 5, 6])
    assert base == names([1, 2, 3, 4, 5, 6, 9])
    other = names([1, 2, 3, 4, 5, 7])
    assert (base[0] == other[0], base[1] == other[1]) == (True, False)
    # The same tokens after others are another prefix.
    shifted = names([9, 2, 3, 4, 5, 6])
    assert not set(base) & set(shifted)
    assert {len(name) for name in base} == {DIGEST_BYTES}


def test_models_and_salts_share_nothing():
    tokens = [1, 2, 3, 4, 5, 6]
    variants = [names(tokens), names(tokens, salt="a"), names(tokens, fingerprint="b")]
    # Lengths are part of the name: moving a letter from one to the other changes it.
    variants += [names(tokens, fingerprint="ab", salt="c"), names(tokens, fingerprint="a", salt="bc")]
    assert len({name for variant in variants for name in variant}) == 2 * len(variants)


def test_names_grow_with_the_sequence():
    tokens = [1, 2, 3]
    hasher = BlockHasher(root_hash("model", ""), 3)
    assert hasher.digests(tokens, 0) == []
    first = hasher.digests(tokens, 1)
    tokens += [4, 5, 6]
    assert hasher.digests(tokens, 2) == names(tokens)
    assert hasher.digests(tokens, 1) == first
    with pytest.raises(AssertionError, match="block 2 is not full"):
        hasher.digests([*tokens, 7], 3)


def picture(start, length, content=0):
    rows = np.zeros((length, 2), np.float32)
    return Embeddings(start=start, rows=rows, digest=bytes([content]) * 16)


def with_pictures(*pictures):
    return BlockHasher(root_hash("model", ""), 3, pictures).digests([7] * 9, 3)


def test_pictures_name_the_blocks_they_reach_and_those_after():
    plain, one = with_pictures(), with_pictures(picture(4, 3))
    assert plain[0] == one[0]
    assert not set(plain[1:]) & set(one[1:])
    assert one == with_pictures(picture(4, 3))
    assert one[:2] != with_pictures(picture(4, 3, content=1))[:2]


def test_the_same_picture_elsewhere_or_cut_elsewhere_is_another_name():
    variants = [
        with_pictures(picture(0, 6)),
        with_pictures(picture(0, 3), picture(3, 3)),
        with_pictures(picture(3, 6)),
        with_pictures(picture(4, 5)),
        with_pictures(picture(4, 1), picture(5, 4)),
    ]
    assert len({found[1] for found in variants}) == len(variants)
