import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.model import small

from gossamer.exam.decode import MATCH, Guesser, guessed_greedy, plain_greedy
from gossamer.model import Transformer


@pytest.fixture(scope="module")
def model():
    made = Transformer(small.debug(), seed=5).eval()
    for name, parameter in made.named_parameters():
        if parameter.dim() == 2:
            parameter.data *= 3
        if name.endswith("lm_head.weight"):
            parameter.data *= 2
    return made


@pytest.mark.parametrize("seed", range(3))
def test_guesses_change_nothing(model, seed):
    rng = torch.Generator().manual_seed(seed)
    prompt = torch.randint(0, 256, (40 + seed,), generator=rng).tolist()
    wanted = plain_greedy(model, prompt, stop=-1, max_tokens=24)
    noise = torch.randint(0, 256, (30,), generator=rng).tolist()
    right, half = wanted.ids, [*wanted.ids[:12], *noise, *wanted.ids[12:]]
    for texts in ([], [right], [half], [noise], [right[::-1]], [prompt, half]):
        made = guessed_greedy(model, prompt, -1, 24, texts)
        assert made.ids == wanted.ids
    assert guessed_greedy(model, prompt, -1, 24, [right]).num_passes < 10


def test_it_stops_at_the_stop_token_and_at_the_limit(model):
    prompt = list(range(50))
    ids = plain_greedy(model, prompt, stop=-1, max_tokens=30).ids
    stop = ids[12]
    wanted = plain_greedy(model, prompt, stop=stop, max_tokens=30).ids
    assert guessed_greedy(model, prompt, stop, 30, [ids]).ids == wanted
    assert wanted[-1] == stop
    assert len(guessed_greedy(model, prompt, -1, 7, [ids]).ids) == 7


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 20))
def test_a_guess_is_what_followed(text, length):
    guesser = Guesser()
    guesser.add(text)
    for end in range(1, len(text)):
        guess = guesser.guess(text[:end], length)
        assert 0 < len(guess) <= length
        runs = [text[i : i + MATCH + len(guess)] for i in range(len(text))]
        known = text[max(0, end - MATCH) : end]
        # The longest run is always found here, because the text itself holds it.
        assert any(text[i : i + len(known) + len(guess)] == known + guess for i in range(len(runs)))


def test_later_texts_win_and_growth_is_seen():
    guesser, growing = Guesser(), [9]
    guesser.add([1, 2, 3])
    guesser.add(growing)
    guesser.add([1, 2, 4])
    assert guesser.guess([1, 2], 1) == [4]
    growing += [5, 6, 7]
    assert guesser.guess([5, 6], 4) == [7]
    assert guesser.guess([8], 4) == []
