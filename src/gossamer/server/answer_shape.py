"""The chat format's messages as shapes: thought, response, calls with their arguments one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gossamer.grammar.guide import Guide
from gossamer.server.envelope import Choice, End, Exit, Free, Spot, Step, writing
from gossamer.text.tokenizer import Tokenizer
from gossamer.text.xtml import Piece, close_tag, open_tag

MAX_CALLS = 128
"""Most calls of one answer, so that it ends."""

Ids = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A tool's argument.

    Attributes:
        name: Its key.
        required: Whether every call has it.
        kinds: The format's name of each type that it may have, with the grammar of its text: strings raw,
            all others JSON; None where the text is always empty.
    """

    name: str
    required: bool
    kinds: Mapping[str, Guide | None]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool that may be called: its arguments, or the grammar of the JSON object that holds them all."""

    name: str
    arguments: tuple[Argument, ...] | Guide


class Shapes:
    """Shapes of answers in the chat format.

    Args:
        tokenizer: Spells the markers, piece by piece as the prompt's are.
        parallel: Whether an answer may have more than one call.
    """

    def __init__(self, tokenizer: Tokenizer, *, parallel: bool):
        self._tokenizer = tokenizer
        self._parallel = parallel
        self._close_call = self._ids(close_tag("call"))
        self._close_argument = self._ids(close_tag("argument"))
        self._close_message = self._ids([*close_tag("tools"), *close_tag("message")])

    def answer(
        self,
        *,
        start: Literal["think", "response", "message"],
        tools: Sequence[Tool],
        required: bool,
        guide: Guide | None,
        prefix: bytes = b"",
    ) -> Spot | None:
        """An answer from its beginning.

        Args:
            start: The channel that the prompt left open.
            tools: What may be called.
            required: Whether something must be called.
            guide: The grammar of the response; None leaves it free.
            prefix: What the response begins with already.

        Returns:
            None where the prefix has no place in the grammar.
        """
        calls = _Calls(self, tools)
        response = self._response(calls, required, guide, prefix)
        if response is None or start == "response":
            return response
        opening = self._ids(open_tag("response"))
        if start == "think":
            opening = (*self._ids(close_tag("think")), *opening)
        first = Choice((Step(ids=opening, cost=response.cost, then=lambda: response),))
        return Free(first) if start == "think" else first

    def _response(self, calls: _Calls, required: bool, guide: Guide | None, prefix: bytes) -> Spot | None:
        closing = self._ids(close_tag("response"))
        over = Step(ids=(*closing, *self._ids(close_tag("message"))), cost=0, then=End)
        first = calls.steps((*closing, *self._ids(open_tag("tools"))), 1) if calls.tools else []
        if guide is None:
            return Free(Choice(tuple(first if required else [over, *first])))
        if required:
            # Called is what was asked for; the response stays empty.
            return Choice(tuple(first))
        exit = _exit(Choice((over,)))
        return writing(guide, exit, prefix=prefix, instead=_exit(Choice(tuple(first))) if first else None)

    def after_call(self, calls: _Calls, prefix: Ids, number: int) -> list[Step]:
        """What may follow the last argument of a call, whose closing tokens are the prefix."""
        closing = (*prefix, *self._close_call)
        steps = [Step(ids=(*closing, *self._close_message), cost=0, then=End)]
        if self._parallel and number < MAX_CALLS:
            steps += calls.steps(closing, number + 1)
        return steps

    @property
    def cost_after_call(self) -> int:
        """Tokens that close a call and everything around it."""
        return len(self._close_call) + len(self._close_message)

    @property
    def close_argument(self) -> Ids:
        """The tokens that close an argument."""
        return self._close_argument

    def open_call(self, tool: str, number: int) -> Ids:
        """The tokens that open a call."""
        return self._ids(open_tag("call", [("tool", tool), ("index", str(number))]))

    def open_argument(self, name: str, kind: str) -> Ids:
        """The tokens that open an argument."""
        return self._ids(open_tag("argument", [("key", name), ("type", kind)]))

    def json_block(self) -> tuple[Ids, Ids]:
        """The tokens around an object that holds all arguments."""
        return self._ids(open_tag("json", [("type", "object")])), self._ids(close_tag("json"))

    def _ids(self, pieces: Sequence[Piece]) -> Ids:
        found: list[int] = []
        for piece in pieces:
            if piece.control:
                found.append(self._tokenizer.special(piece.text))
            else:
                found += self._tokenizer.encode(piece.text)
        return tuple(found)


class _Calls:
    """The calls of one answer."""

    def __init__(self, shapes: Shapes, tools: Sequence[Tool]):
        self._shapes = shapes
        self.tools = tools
        self._costs = {tool.name: self._body_cost(tool) for tool in tools}

    def steps(self, prefix: Ids, number: int) -> list[Step]:
        """The beginnings of call ``number``, behind the prefix."""
        return [
            Step(
                ids=(*prefix, *self._shapes.open_call(tool.name, number)),
                cost=self._costs[tool.name],
                then=lambda tool=tool: self._body(tool, number),
            )
            for tool in self.tools
        ]

    def _body_cost(self, tool: Tool) -> int:
        if isinstance(tool.arguments, Guide):
            before, after = self._shapes.json_block()
            return len(before) + tool.arguments.grammar.cost + len(after) + self._shapes.cost_after_call
        return self._rest_cost(tool.arguments, frozenset())

    def _body(self, tool: Tool, number: int) -> Spot:
        if not isinstance(tool.arguments, Guide):
            return Choice(tuple(self._arguments(tool.arguments, frozenset(), (), number)))
        guide, (before, after) = tool.arguments, self._shapes.json_block()
        exit = Exit(
            cost=len(after) + self._shapes.cost_after_call,
            choice=lambda: Choice(tuple(self._shapes.after_call(self, after, number))),
        )
        return Choice(
            (Step(ids=before, cost=guide.grammar.cost + exit.cost, then=lambda: _start(guide, exit)),)
        )

    def _arguments(
        self, arguments: Sequence[Argument], given: frozenset[str], prefix: Ids, number: int
    ) -> list[Step]:
        """What may come behind the prefix when some arguments were given: another, or the call's end."""
        steps: list[Step] = []
        for argument in arguments:
            if argument.name not in given:
                then = given | {argument.name}
                steps += self._argument(arguments, argument, then, prefix, number)
        if all(a.name in given for a in arguments if a.required):
            steps += self._shapes.after_call(self, prefix, number)
        return steps

    def _argument(
        self,
        arguments: Sequence[Argument],
        argument: Argument,
        given: frozenset[str],
        prefix: Ids,
        number: int,
    ) -> list[Step]:
        closing = self._shapes.close_argument
        exit = Exit(
            cost=len(closing) + self._rest_cost(arguments, given),
            choice=lambda: Choice(tuple(self._arguments(arguments, given, closing, number))),
        )
        steps = []
        for kind, guide in argument.kinds.items():
            opening = (*prefix, *self._shapes.open_argument(argument.name, kind))
            cost = exit.cost + (0 if guide is None else guide.grammar.cost)
            steps.append(Step(ids=opening, cost=cost, then=lambda guide=guide: _start(guide, exit)))
        return steps

    def _rest_cost(self, arguments: Sequence[Argument], given: frozenset[str]) -> int:
        """Tokens for the required arguments that are not given yet, and the end."""
        missing = [a for a in arguments if a.required and a.name not in given]
        return sum(map(self._argument_cost, missing)) + self._shapes.cost_after_call

    def _argument_cost(self, argument: Argument) -> int:
        return len(self._shapes.close_argument) + min(
            len(self._shapes.open_argument(argument.name, kind))
            + (0 if guide is None else guide.grammar.cost)
            for kind, guide in argument.kinds.items()
        )


def _exit(choice: Choice) -> Exit:
    return Exit(cost=choice.cost, choice=lambda: choice)


def _start(guide: Guide | None, exit: Exit) -> Spot:
    if guide is None:
        return exit.choice()
    found = writing(guide, exit)
    assert found is not None
    return found
