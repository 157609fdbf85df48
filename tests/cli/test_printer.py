import io

from hypothesis import given
from hypothesis import strategies as st

from gossamer.cli.printer import Printer, printable, speed_line
from gossamer.protocol.events import (
    ContentDelta,
    Finish,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)

EVENTS = [
    ReasoningDelta("think"),
    ReasoningDelta("ing\n"),
    ContentDelta("Hi "),
    ContentDelta("there"),
    ToolCallBegin(index=0, id="f:0", name="f"),
    ToolCallArguments(index=0, text='{"x": 1}'),
    ToolCallEnd(index=0),
    Usage(prompt_tokens=1, completion_tokens=2),
    Finish("tool_calls"),
]


def printed(events, *, color):
    out = io.StringIO()
    printer = Printer(out, color=color)
    for event in events:
        printer.write(event)
    return out.getvalue(), printer


def test_plain_text_has_labels_and_line_ends():
    text, printer = printed(EVENTS, color=False)
    assert text == '[reasoning]\nthinking\n[answer]\nHi there\n[tool call 0]\nf {"x": 1}\n'
    assert printer.finish == "tool_calls"
    assert printer.usage == Usage(prompt_tokens=1, completion_tokens=2)


def test_reasoning_is_dim_and_nothing_stays_dim():
    text, _ = printed(EVENTS, color=True)
    assert "\x1b[2mthinking\n\x1b[0m" in text
    assert text.rindex("\x1b[0m") > text.rindex("\x1b[2m")


def test_a_pipe_gets_no_colour():
    out = io.StringIO()
    Printer(out).write(ReasoningDelta("x"))
    assert "\x1b" not in out.getvalue()


@given(st.text())
def test_a_model_cannot_steer_the_terminal(text):
    shown = printable(text)
    assert len(shown) == len(text)
    assert all(c in "\n\t" or (ord(c) >= 32 and not 0x7F <= ord(c) <= 0x9F) for c in shown)
    if text.isprintable():
        assert shown == text


def test_speed_says_that_it_is_measured():
    assert speed_line(num_prompt=10, num_generated=20, duration_s=4.0) == (
        "10 prompt + 20 generated tokens in 4.00 s, 5.0 generated tokens/s (measured)"
    )
