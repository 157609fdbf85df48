"""What a request demands of its answer's shape: JSON of a schema, calls of certain tools, and the markers."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from gossamer.grammar.build import Builder
from gossamer.grammar.errors import NoValueError, SchemaError
from gossamer.grammar.guide import Guide, Masks
from gossamer.grammar.vocabulary import Vocabulary
from gossamer.protocol.errors import RequestError
from gossamer.protocol.request import Request
from gossamer.server.answer_shape import Argument, Shapes, Tool
from gossamer.server.structured import StructuredMask, Tokens
from gossamer.text import specials
from gossamer.text.chat import Rendered
from gossamer.text.tokenizer import Tokenizer

MAX_KEPT = 256
"""Schemas whose grammars are kept: agents send the same ones with every turn."""
BACKGROUND_VOCABULARY = 16_384
"""Tokens from which on masks are computed beside the model; below it, handing over takes longer."""
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}


def is_constrained(request: Request) -> bool:
    """Whether the answer is held to a shape; all others are sampled freely."""
    if request.response_format is not None or request.tool_choice == "required":
        return True
    return request.tool_choice != "none" and any(_is_strict(tool) for _, tool in _tools(request))


class Constraints:
    """Plans the shapes of answers; one for all requests of a model.  Callable from any thread."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._kept: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._lock = threading.Lock()

    @cached_property
    def _masks(self) -> Masks:
        tokenizer = self._tokenizer
        return Masks(Vocabulary([tokenizer.token_bytes(i) for i in range(tokenizer.num_ranks)]))

    @cached_property
    def _tokens(self) -> Tokens:
        return Tokens(
            text=self._masks.vocabulary,
            close=self._tokenizer.special(specials.CLOSE),
            end=self._tokenizer.special(specials.END_OF_MSG),
        )

    @cached_property
    def _executor(self) -> ThreadPoolExecutor | None:
        if len(self._masks.vocabulary) < BACKGROUND_VOCABULARY:
            return None
        return ThreadPoolExecutor(max_workers=2, thread_name_prefix="gossamer-mask")

    def mask(self, request: Request, rendered: Rendered, *, limit: int) -> StructuredMask:
        """The mask that holds one answer to its shape; may take a while.

        Args:
            request: See `is_constrained`.
            rendered: Its prompt.
            limit: Tokens that may be generated.

        Raises:
            RequestError: a schema that cannot be enforced, options that contradict it, or a limit that no
                answer of this shape fits.
        """
        for name in ("ignore_eos", "min_tokens"):
            if getattr(request, name):
                raise RequestError(
                    f"{name} asks for tokens beyond an answer's end, which an answer of a fixed shape does "
                    f"not have; leave {name} out, or response_format, tool_choice and strict tools",
                    param=name,
                    code="unsupported_value",
                )
        shapes = Shapes(self._tokenizer, parallel=request.parallel_tool_calls)
        tools = [] if request.tool_choice == "none" else self._offered(request)
        root = shapes.answer(
            start=rendered.start,
            tools=tools,
            required=request.tool_choice == "required",
            guide=self._response(request),
            prefix=_prefix(request, rendered),
        )
        if root is None:
            raise RequestError(
                "the last message's content cannot be continued to an answer of this response_format",
                param=f"messages[{len(request.messages) - 1}].content",
            )
        if root.cost > limit:
            raise RequestError(
                f"the answer may take {limit} tokens, but the shortest one of this shape takes {root.cost}; "
                "raise max_completion_tokens or shorten the conversation",
                param="max_completion_tokens",
            )
        return StructuredMask(root, limit=limit, tokens=self._tokens, executor=self._executor)

    def _response(self, request: Request) -> Guide | None:
        """The grammar of the visible answer, None where it is free."""
        form = request.response_format
        if form is None:
            return None
        schema: Any = _ANY_OBJECT
        if form["type"] == "json_schema" and form["json_schema"].get("strict", True):
            schema = form["json_schema"]["schema"]
        elif form["type"] == "json_schema":
            schema = True
        return self._compiled("json", schema, "response_format.json_schema.schema", self._guide)

    def _offered(self, request: Request) -> list[Tool]:
        found = []
        for at, tool in _tools(request):
            function = tool["function"]
            if request.named_tool not in (None, function["name"]):
                continue
            arguments = self._arguments(function, at)
            found.append(Tool(name=function["name"], arguments=arguments))
        return found

    def _arguments(self, function: Mapping[str, Any], at: str) -> tuple[Argument, ...] | Guide:
        schema = function.get("parameters") or _NOTHING
        where = f"{at}.function.parameters"
        if function.get("strict"):
            return self._compiled("tool", schema, where, self._tool)
        try:
            return self._compiled("tool", schema, where, self._tool)
        except RequestError:
            # Nobody asked to hold these arguments to their schema; an object they are in any case.
            return self._compiled("tool", _ANY_OBJECT, where, self._tool)

    def _compiled(self, kind: str, schema: Any, where: str, compile: Callable[[Any], Any]) -> Any:
        key = (kind, json.dumps(schema, ensure_ascii=False))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        try:
            found = compile(schema)
        except SchemaError as error:
            raise RequestError(
                f"{where}: {error}", param=where + error.path[1:], code="unsupported_schema"
            ) from None
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return found

    def _guide(self, schema: Any) -> Guide:
        builder = Builder(schema, self._masks.vocabulary)
        return Guide(builder.json(builder.root), self._masks)

    def _tool(self, schema: Any) -> tuple[Argument, ...] | Guide:
        """Arguments one by one, or as one JSON object where the schema does not simply list them."""
        builder = Builder(schema, self._masks.vocabulary)
        listed = builder.object()
        if listed is None:
            return Guide(builder.json(builder.root, {"object"}), self._masks)
        found = []
        for property in listed.properties:
            kinds: dict[str, Guide | None] = {}
            for kind in sorted(builder.kinds(property.nodes)):
                try:
                    if kind == "string":
                        grammar = builder.raw(property.nodes)
                    else:
                        grammar = builder.json(property.nodes, {kind})
                except NoValueError:
                    continue  # a value of another kind may do
                kinds[kind] = None if grammar.is_only_empty else Guide(grammar, self._masks)
            if kinds:
                found.append(Argument(name=property.name, required=property.required, kinds=kinds))
            elif property.required:
                path = property.nodes[-1].path if property.nodes else "#"
                raise NoValueError(path, "", "holds for no value that can be written")
        return tuple(found)


def _tools(request: Request) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Every declared tool and where it stands."""
    found = [(f"tools[{i}]", tool) for i, tool in enumerate(request.tools)]
    for at, message in enumerate(request.messages):
        found += [(f"messages[{at}].tools[{i}]", tool) for i, tool in enumerate(message.tools)]
    return found


def _is_strict(tool: Mapping[str, Any]) -> bool:
    return bool(tool["function"].get("strict"))


def _prefix(request: Request, rendered: Rendered) -> bytes:
    """What stands in the answer already, where a partial message is continued."""
    last = request.messages[-1]
    return last.text.encode() if last.partial and rendered.start == "response" else b""
