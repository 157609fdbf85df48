"""The `gossamer` command: one table of commands, each imported only when it is called.

Exit codes: 0 done, 1 a mistake the user can fix (one line on stderr), 2 wrong usage.

The first screen is printed from the table below without the parser: importing the parser and its
help renderer takes longer than the 150 ms that `--help` may take.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from gossamer import __version__
from gossamer.errors import GossamerError

if TYPE_CHECKING:
    from cyclopts import App

SUMMARY = "The open stack for enormous sparse models of the Kimi-K3.1-Pro family."

# name: (module:function or module:App, one line of help).
COMMANDS: dict[str, tuple[str, str]] = {
    "info": ("gossamer.cli.info:info", "Show version, machine, native kernels and optional parts."),
    "inspect": ("gossamer.cli.inspect:inspect", "Count a model's tensors, parameters, bytes and cache."),
    "generate": ("gossamer.cli.generate:generate", "Continue a prompt with a local model."),
    "chat": ("gossamer.cli.chat:chat", "Talk to a local model in the terminal."),
    "serve": ("gossamer.cli.serve:serve", "Serve a local model over the OpenAI wire format."),
    "keys": ("gossamer.cli.keys:app", "Make, list and revoke the API keys of a server."),
    "eval-nano": ("gossamer.cli.eval_nano:eval_nano", "Examine a small model: tools, arguments, reasoning."),
    "train": ("gossamer.cli.train:app", "Train the small models that ship with gossamer."),
}

# Optional packages by import name, and the extra that brings them.
EXTRAS = {"torch": "train", "tokenizers": "train"}


def build() -> App:
    """The application with every command registered by import path; nothing of them is imported."""
    from cyclopts import App, Parameter

    # Flags have no --no-x twin: every one of them is off unless given.
    flags = Parameter(negative=())
    app = App(
        name="gossamer",
        help=SUMMARY,
        version=__version__,
        default_parameter=flags,
        suppress_keyboard_interrupt=False,
    )
    for name, (path, _) in COMMANDS.items():
        # A command's own docstring is its help: it holds more than the one line of the table.
        app.command(path, name=name)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave the process with its exit code.

    Args:
        arguments: the words after `gossamer`; None takes them from the process.
    """
    # Imports allocate much and free nothing; collecting every 700 objects is a tenth of the start-up time.
    gc.set_threshold(50_000, 20, 20)
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(words: list[str]) -> int:
    """Run one command and return its exit code."""
    if not words or words[0] in ("--help", "-h"):
        print(overview())
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    if words[0] not in COMMANDS:
        return _usage(_unknown(words[0]))
    return _dispatch(words)


def overview() -> str:
    """The text of `gossamer --help`."""
    width = max(len(name) for name in COMMANDS)
    lines = ["Usage: gossamer COMMAND [ARGUMENTS]", "", SUMMARY, "", "Commands:"]
    lines += [f"  {name:<{width}}  {help_text}" for name, (_, help_text) in COMMANDS.items()]
    lines += ["", "`gossamer COMMAND --help` explains one command; `gossamer --version` prints the version."]
    return "\n".join(lines)


def _dispatch(words: list[str]) -> int:
    from cyclopts import CycloptsError

    try:
        result = build()(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _usage(f"{words[0]}: {error}")
    except GossamerError as error:
        return _fail(str(error))
    except ImportError as error:
        return _fail(_missing_extra(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left (`gossamer ... | head`).  Python would complain again when it
        # flushes stdout at exit, so stdout is pointed at nothing.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def _missing_extra(error: ImportError) -> str:
    """The pip line for an optional package; any other import failure is ours and raised again."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            package = cause.name.split(".")[0]
            if package in EXTRAS:
                return f"this command needs {package}: pip install 'gossamer[{EXTRAS[package]}]'"
        cause = cause.__cause__
    raise error


def _unknown(word: str) -> str:
    from difflib import get_close_matches

    if word.startswith("-"):
        return f"unknown option {word}"
    near = get_close_matches(word, COMMANDS, n=1)
    return f"unknown command {word}" + (f", did you mean {near[0]}?" if near else "")


def _usage(text: str) -> int:
    print(f"gossamer: {_one_line(text)} (see gossamer --help)", file=sys.stderr)
    return 2


def _fail(text: str) -> int:
    print(f"gossamer: {_one_line(text)}", file=sys.stderr)
    return 1


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
