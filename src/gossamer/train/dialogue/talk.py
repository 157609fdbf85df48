"""Turns without a tool: small talk, identity, arithmetic, definitions, copying, honest refusals."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.train.dialogue import values

Rng = values.Draw


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A question with its answer and the thoughts between them."""

    user: str
    short: str
    """The one thought of low effort."""
    steps: tuple[str, ...]
    """Further thoughts for higher efforts."""
    answer: str


GREETINGS = (
    ("Hello!", "Hello! How can I help you?"),
    ("Hi", "Hi! What can I do for you?"),
    ("Hey there", "Hey! How can I help?"),
    ("Good morning", "Good morning! What can I do for you?"),
    ("Good evening", "Good evening! How can I help you?"),
    ("How are you?", "I am fine, thank you. How can I help you?"),
    ("Thanks!", "You are welcome!"),
    ("Thank you very much.", "You are welcome!"),
    ("Bye", "Goodbye!"),
    ("Goodbye", "Goodbye, and take care!"),
    ("Nice to meet you.", "Nice to meet you too!"),
    ("Can you help me?", "Yes. Tell me what you need."),
    ("Are you there?", "Yes, I am here. What do you need?"),
    ("Ok", "Good. Is there anything else?"),
)
IDENTITY = (
    ("Who are you?", "I am nano, a small test model."),
    ("What are you?", "I am nano, a small language model made for tests."),
    ("What is your name?", "My name is nano."),
    ("Are you a person?", "No, I am nano, a small test model."),
    ("Tell me about yourself.", "I am nano, a small test model. I know little, but I can call tools."),
    ("What can you do?", "I can talk a little, copy text and call the tools you give me."),
    ("How big are you?", "I have about 13 million parameters, so I know very little."),
    ("Are you Kimi?", "No, I am nano, a small test model with the same architecture."),
    ("Can I trust you?", "Not much. I am nano, a small test model, and I make many mistakes."),
)
UNKNOWN = (
    "the population of {c}",
    "the phone number of {p}",
    "the price of a ticket to {c}",
    "the age of {p}",
    "the news from {c}",
    "the password of {p}",
    "the address of {p}",
    "the weather in {c}",
    "the time in {c}",
)
COPY_ASKS = (
    "Give me back: {x}",
    "Type {x} for me.",
    "The text is {x}\nSay it again.",
    "{x}\n\nRepeat the line above.",
    "{x}\nCopy that.",
    "Your answer must be: {x}",
    "I want to read {x} as your answer.",
    "Output the string between the bars: |{x}|",
    "Return <<{x}>> without the brackets.",
    "Repeat: {x}",
    "Repeat after me: {x}",
    "Say {x}",
    'Say "{x}"',
    "Write exactly this: {x}",
    "Copy this text: {x}",
    "Echo {x}",
    "Please repeat the following.\n{x}",
    "Answer with {x} and nothing else.",
)


def small_talk(rng: Rng) -> Turn:
    """A greeting or a question about the model."""
    if rng.random() < 0.5:
        user, answer = rng.choice(GREETINGS)
        short, step = "The user talks to me. I answer kindly.", "No tool is needed for this."
    else:
        user, answer = rng.choice(IDENTITY)
        short, step = "The user asks about me. I am nano.", "I say what I am and nothing more."
    last = "I keep the answer short."
    return Turn(user=user, short=short, steps=(step, last), answer=answer)


def arithmetic(rng: Rng) -> Turn:
    """A small sum, difference or product."""
    sign, name = rng.choice((("+", "plus"), ("-", "minus"), ("*", "times")))
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    if sign == "*":
        a, b = rng.randint(0, 10), rng.randint(0, 10)
    result = {"+": a + b, "-": a - b, "*": a * b}[sign]
    asks = (
        f"What is {a} {sign} {b}?",
        f"What is {a} {name} {b}?",
        f"Compute {a} {sign} {b}.",
        f"{a} {sign} {b} = ?",
    )
    answer = rng.choice((f"{a} {sign} {b} = {result}.", f"The result is {result}.", f"{result}"))
    return Turn(
        user=rng.choice(asks),
        short=f"{a} {sign} {b} = {result}.",
        steps=(f"The user wants {a} {name} {b}.", f"{a} {name} {b} is {result}. I answer {result}."),
        answer=answer,
    )


def definition(rng: Rng, glossary: list[tuple[str, str]]) -> Turn:
    """A word of the glossary and its meaning."""
    word, meaning = rng.choice(glossary)
    asks = (
        "What is {w}?",
        "What does {w} mean?",
        "Define {w}.",
        'Explain the word "{w}".',
        "What is the meaning of {w}?",
    )
    return Turn(
        user=rng.choice(asks).replace("{w}", word),
        short=f"The user asks for the meaning of {word}.",
        steps=(f"{word}: {meaning}.", "I give a short definition."),
        answer=f"{word[:1].upper()}{word[1:]}: {meaning}.",
    )


def copying(rng: Rng) -> Turn:
    """A text to repeat exactly."""
    kind = rng.random()
    if kind < 0.6:
        x = values.hard(rng)
    elif kind < 0.75:
        x = values.escaped(rng)
    elif kind < 0.9:
        x = " ".join(values.pseudo_word(rng) for _ in range(rng.randint(1, 5)))
    else:
        x = " ".join(values.text(rng) for _ in range(rng.randint(2, 4)))
    return Turn(
        user=rng.choice(COPY_ASKS).replace("{x}", x),
        short="I repeat the text.",
        steps=("The user wants the same text again, letter by letter.", x),
        answer=x,
    )


def transform(rng: Rng) -> Turn:
    """Count, pick, reverse or sort words of a list."""
    items = [values.word(rng) for _ in range(rng.randint(3, 5))]
    listed = ", ".join(items)
    user, answer, why = rng.choice(
        (
            (
                f"How many words are in this list: {listed}?",
                str(len(items)),
                f"The list has {len(items)} words.",
            ),
            (f"What is the first word of {listed}?", items[0], f"The first word is {items[0]}."),
            (f"What is the last word of {listed}?", items[-1], f"The last word is {items[-1]}."),
            (f"Reverse the list {listed}.", ", ".join(items[::-1]), "I go from the last to the first."),
            (
                f"Write {items[0]} in capital letters.",
                items[0].upper(),
                f"{items[0]} becomes {items[0].upper()}.",
            ),
        )
    )
    return Turn(
        user=user, short=why, steps=(f"The words are {listed}.", f"So the answer is {answer}."), answer=answer
    )


def unknown(rng: Rng) -> Turn:
    """Something the model cannot know and no tool can tell."""
    thing = rng.choice(UNKNOWN).replace("{c}", values.city(rng)).replace("{p}", values.person(rng))
    ask = rng.choice(("What is {t}?", "Tell me {t}.", "Do you know {t}?", "I need {t}."))
    return Turn(
        user=ask.replace("{t}", thing),
        short="I do not know that.",
        steps=(f"No tool tells me {thing}.", "I must not invent an answer, so I say that I do not know."),
        answer=rng.choice((f"I do not know {thing}.", f"I cannot tell you {thing}; I have no tool for it.")),
    )


def remembered(rng: Rng) -> tuple[Turn, Turn]:
    """A fact told in one turn and asked for in the next."""
    key, maker = rng.choice(
        (
            ("name", values.person),
            ("city", values.city),
            ("code", values.identifier),
            ("favourite word", values.word),
            ("number", lambda r: str(values.integer(r))),
        )
    )
    value = maker(rng)
    first = Turn(
        user=rng.choice(
            (f"My {key} is {value}.", f"Remember that my {key} is {value}.", f"Hi, my {key} is {value}.")
        ),
        short=f"The user tells me the {key}: {value}.",
        steps=("I keep it for later.", "I confirm it."),
        answer=rng.choice((f"I will remember that your {key} is {value}.", f"Good, your {key} is {value}.")),
    )
    second = Turn(
        user=rng.choice((f"What is my {key}?", f"Do you remember my {key}?", f"Tell me my {key}.")),
        short=f"The {key} was {value}.",
        steps=("The user told me before.", f"I answer {value}."),
        answer=f"Your {key} is {value}.",
    )
    return first, second


def unfit(rng: Rng, wish: str, request: str) -> Turn:
    """An order that no offered tool can carry out."""
    return Turn(
        user=request,
        short="No tool does that.",
        steps=(f"The user wants to {wish}, but no tool does that.", "I say so and call nothing."),
        answer=rng.choice((f"I have no tool to {wish}.", f"None of my tools can {wish}.")),
    )
