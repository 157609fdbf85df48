import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.protocol.conversation import check_conversation
from gossamer.protocol.messages import Message
from gossamer.protocol.turns import split_turns, without_oldest
from protocol.strategies import conversations


@given(conversations(), st.data())
def test_what_stays_is_a_conversation_with_its_reasoning(messages, data):
    """B16: whole turns go; what stays is untouched and still has every result and every thought."""
    num_turns = len(split_turns(messages))
    count = data.draw(st.integers(0, num_turns - 1))
    kept, dropped = without_oldest(messages, count)
    assert check_conversation(kept, "reject") == ()
    assert len(split_turns(kept)) == num_turns - count
    assert kept == tuple(m for i, m in enumerate(messages) if i not in dropped)
    assert [m for m in kept if m.role == "system"] == [m for m in messages if m.role == "system"]
    assert kept[-1] == messages[-1]


def test_the_last_turn_stays():
    messages = [Message(role="user", content="x")]
    for count in (1, -1):
        with pytest.raises(ValueError, match="cannot drop"):
            without_oldest(messages, count)
