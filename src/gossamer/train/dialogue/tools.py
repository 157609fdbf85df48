"""A catalogue of everyday tools, with their requests and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gossamer.train.dialogue import values

Rng = values.Draw


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One argument of a tool."""

    slot: str
    """Its name in the request templates."""
    keys: tuple[str, ...]
    """Its possible names in the schema."""
    type: str
    maker: values.Maker
    required: bool = True
    enum: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Concept:
    """What a tool does, with the ways to ask for it and to read its result."""

    names: tuple[str, ...]
    about: tuple[str, ...]
    parameters: tuple[Slot, ...]
    asks: tuple[str, ...]
    wish: str
    """What the user wants, for the reasoning."""
    result: tuple[tuple[str, values.Maker], ...]
    answers: tuple[str, ...]
    outcome: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """The true result of the arguments, where it is not a matter of chance."""


def _p(slot: str, keys: str, kind: str, maker: values.Maker, required: bool = True, enum=()) -> Slot:
    return Slot(
        slot=slot, keys=tuple(keys.split()), type=kind, maker=maker, required=required, enum=tuple(enum)
    )


def _temperature(rng: Rng) -> int:
    return rng.randint(-9, 38)


def _sky(rng: Rng) -> str:
    return rng.choice(("sunny", "cloudy", "rainy", "windy", "foggy", "snowy", "clear", "partly cloudy"))


def _small(rng: Rng) -> int:
    return rng.randint(1, 20)


def _language(rng: Rng) -> str:
    return rng.choice(
        [
            "French",
            "German",
            "Spanish",
            "Italian",
            "Japanese",
            "Chinese",
            "Polish",
            "Dutch",
            "Swedish",
            "Korean",
        ]
    )


def _currency(rng: Rng) -> str:
    return rng.choice(["USD", "EUR", "GBP", "JPY", "CHF", "SEK", "NOK", "CAD", "AUD", "INR"])


def _sum(rng: Rng) -> str:
    return f"{rng.randint(1, 99)} {rng.choice('+-*/')} {rng.randint(1, 99)}"


def _evaluated(given: dict[str, Any]) -> dict[str, Any]:
    a, sign, b = given["sum"].split()
    a, b = int(a), int(b)
    return {"result": {"+": a + b, "-": a - b, "*": a * b, "/": round(a / b, 2)}[sign]}


def _unit(rng: Rng) -> str:
    return rng.choice(values.UNITS)


CONCEPTS: tuple[Concept, ...] = (
    Concept(
        names=("get_weather", "get_weather", "weather", "current_weather", "fetch_weather", "getWeather"),
        about=("Get the weather for a city", "Current weather of a place", "Returns the weather in a city"),
        parameters=(
            _p("city", "city city city location place town", "string", values.city),
            _p("unit", "unit units", "string", _unit, False, values.UNITS),
        ),
        asks=(
            "What is the weather in {city}?",
            "What's the weather in {city}?",
            "What's the weather like in {city} today?",
            "How is the weather in {city}?",
            "Tell me the weather in {city}.",
            "Is it cold in {city}?",
            "Weather for {city} in {unit}, please.",
            "What is the temperature in {city} in {unit}?",
            "I am going to {city}. How is the weather there?",
            "Please check the weather in {city} right now.",
            "Do I need an umbrella in {city} today?",
        ),
        wish="the weather in {city}",
        result=(("temperature", _temperature), ("condition", _sky)),
        answers=(
            "It is {temperature} degrees and {condition} in {city}.",
            "The weather in {city} is {condition} with {temperature} degrees.",
        ),
    ),
    Concept(
        names=("get_time", "current_time", "clock", "time_in_city", "getLocalTime"),
        about=("Get the local time of a city", "Tells the time in a place"),
        parameters=(_p("city", "city location place timezone_city", "string", values.city),),
        asks=("What time is it in {city}?", "Tell me the time in {city}.", "Current time in {city}, please."),
        wish="the time in {city}",
        result=(("time", values.clock),),
        answers=("It is {time} in {city}.", "The local time in {city} is {time}."),
    ),
    Concept(
        names=("send_email", "email", "sendMail", "mail_send", "compose_email"),
        about=("Send an email", "Sends a message to an address"),
        parameters=(
            _p("to", "to recipient address", "string", values.email),
            _p("subject", "subject title", "string", values.phrase),
            _p("urgent", "urgent important", "boolean", values.boolean, False),
        ),
        asks=(
            'Send an email to {to} with the subject "{subject}".',
            "Write to {to}, subject {subject}.",
            'Please mail {to}. Subject: "{subject}", urgent: {urgent}.',
        ),
        wish="to send an email to {to}",
        result=(("status", lambda rng: "sent"), ("id", values.identifier)),
        answers=("The email to {to} was sent. Its id is {id}.", "Done, {to} has your email ({id})."),
    ),
    Concept(
        names=("search_flights", "find_flights", "flightSearch", "flights"),
        about=("Search flights between two cities", "Find flights on a date"),
        parameters=(
            _p("origin", "origin from_city source", "string", values.city),
            _p("target", "destination to_city target", "string", values.city),
            _p("date", "date day departure_date", "string", values.date),
            _p("people", "passengers people seats", "integer", _small, False),
        ),
        asks=(
            "Find a flight from {origin} to {target} on {date}.",
            "I want to fly from {origin} to {target} on {date}.",
            "Are there flights from {origin} to {target} on {date} for {people} people?",
        ),
        wish="a flight from {origin} to {target}",
        result=(("flight", values.identifier), ("price", values.integer)),
        answers=("Flight {flight} costs {price}.", "I found flight {flight} to {target} for {price}."),
    ),
    Concept(
        names=("calculate", "calculator", "evaluate", "math_eval", "compute"),
        about=("Evaluate an arithmetic expression", "A calculator"),
        parameters=(_p("sum", "expression formula input", "string", _sum),),
        asks=("What is {sum}?", "Compute {sum}.", "Use the calculator for {sum}.", "Please evaluate {sum}"),
        wish="the value of {sum}",
        result=(("result", values.integer),),
        answers=("{sum} is {result}.", "The result is {result}."),
        outcome=_evaluated,
    ),
    Concept(
        names=("set_timer", "start_timer", "timer", "countdown"),
        about=("Start a timer", "Set a countdown in minutes"),
        parameters=(
            _p("minutes", "minutes duration duration_minutes", "integer", _small),
            _p("label", "label name", "string", values.word, False),
        ),
        asks=(
            "Set a timer for {minutes} minutes.",
            "Start a {minutes} minute timer called {label}.",
            "Wake me in {minutes} minutes.",
        ),
        wish="a timer of {minutes} minutes",
        result=(("timer_id", values.integer),),
        answers=("The timer for {minutes} minutes runs.", "Timer {timer_id} is set to {minutes} minutes."),
    ),
    Concept(
        names=("create_event", "add_event", "calendar_add", "scheduleMeeting", "book_meeting"),
        about=("Add an event to the calendar", "Schedule a meeting"),
        parameters=(
            _p("title", "title name summary", "string", values.phrase),
            _p("date", "date day", "string", values.date),
            _p("time", "time start start_time", "string", values.clock),
            _p(
                "guests",
                "attendees guests people",
                "array",
                lambda r: [values.person(r), values.person(r)],
                False,
            ),
        ),
        asks=(
            'Schedule "{title}" on {date} at {time}.',
            "Put {title} in my calendar for {date}, {time}.",
            'Book a meeting "{title}" on {date} at {time} with {guests}.',
        ),
        wish="an event on {date}",
        result=(("event", values.identifier),),
        answers=("{title} is in your calendar on {date} at {time}.", "Booked as {event}."),
    ),
    Concept(
        names=("read_file", "open_file", "cat_file", "readFile", "get_file"),
        about=("Read a file", "Returns the content of a file"),
        parameters=(
            _p("path", "path file filename file_path", "string", values.path),
            _p("lines", "max_lines limit lines", "integer", _small, False),
        ),
        asks=(
            "Read the file {path}.",
            "What is in {path}?",
            "Show me {path}.",
            "Show the first {lines} lines of {path}.",
        ),
        wish="the content of {path}",
        result=(("content", values.phrase),),
        answers=("{path} says: {content}", "The file contains: {content}"),
    ),
    Concept(
        names=("write_file", "save_file", "writeFile", "store_text"),
        about=("Write text to a file", "Save a file"),
        parameters=(
            _p("path", "path file filename", "string", values.path),
            _p("text", "content text data", "string", values.text),
            _p("append", "append add", "boolean", values.boolean, False),
        ),
        asks=(
            "Write {text} to {path}.",
            "Save the text {text} in {path}.",
            "Put {text} into {path} with append {append}.",
        ),
        wish="to write {path}",
        result=(("bytes", values.integer),),
        answers=("I wrote {bytes} bytes to {path}.", "{path} is saved."),
    ),
    Concept(
        names=("translate", "translate_text", "translator", "translateText"),
        about=("Translate text to a language", "Translates a sentence"),
        parameters=(
            _p("text", "text sentence input", "string", values.phrase),
            _p("language", "language target target_language", "string", _language),
        ),
        asks=(
            'Translate "{text}" to {language}.',
            "How do you say {text} in {language}?",
            'Please put "{text}" into {language}.',
        ),
        wish="a translation to {language}",
        result=(("translation", values.phrase),),
        answers=('In {language} it is "{translation}".', "{translation}"),
    ),
    Concept(
        names=("convert_currency", "exchange", "currency_convert", "fx"),
        about=("Convert money between currencies",),
        parameters=(
            _p(
                "amount", "amount value", "number", lambda r: r.choice((values.integer(r), values.decimal(r)))
            ),
            _p("from", "from from_currency source", "string", _currency),
            _p("to", "to to_currency target", "string", _currency),
        ),
        asks=("Convert {amount} {from} to {to}.", "How much is {amount} {from} in {to}?"),
        wish="{amount} {from} in {to}",
        result=(("value", values.decimal),),
        answers=("{amount} {from} is {value} {to}.", "That is {value} {to}."),
    ),
    Concept(
        names=("search", "web_search", "search_web", "find_documents", "lookup"),
        about=("Search for documents", "Search the web"),
        parameters=(
            _p("query", "query q terms", "string", values.phrase),
            _p("count", "limit count top_k", "integer", _small, False),
        ),
        asks=(
            "Search for {query}.",
            'Look up "{query}".',
            "Find {count} results for {query}.",
            'Search the web for "{query}" please.',
        ),
        wish="results for {query}",
        result=(("title", values.phrase), ("hits", values.integer)),
        answers=("I found {hits} results; the first is {title}.", 'The best match is "{title}".'),
    ),
    Concept(
        names=("get_stock_price", "stock", "quote", "stockPrice"),
        about=("Get the price of a stock", "Stock quote by symbol"),
        parameters=(
            _p(
                "symbol",
                "symbol ticker",
                "string",
                lambda r: "".join(r.choice("ABCDEFGHIKLMNOPRST") for _ in range(r.randint(3, 4))),
            ),
        ),
        asks=(
            "What is the price of {symbol}?",
            "Stock price of {symbol}?",
            "How much is {symbol} stock now?",
        ),
        wish="the price of {symbol}",
        result=(("price", values.decimal),),
        answers=("{symbol} is at {price}.", "The price of {symbol} is {price}."),
    ),
    Concept(
        names=("play_music", "play", "playSong", "music_player"),
        about=("Play a song", "Play music by an artist"),
        parameters=(
            _p("song", "song track title", "string", values.phrase),
            _p("artist", "artist by", "string", values.person),
            _p("loop", "repeat loop", "boolean", values.boolean, False),
        ),
        asks=(
            "Play {song} by {artist}.",
            'Please play "{song}" by {artist}.',
            "Play {song} by {artist}, repeat {loop}.",
        ),
        wish="to hear {song}",
        result=(("playing", lambda r: True),),
        answers=("Now playing {song} by {artist}.",),
    ),
    Concept(
        names=("turn_light", "set_light", "lights", "switchLight"),
        about=("Switch a light", "Control the lights of a room"),
        parameters=(
            _p(
                "room",
                "room place",
                "string",
                lambda r: r.choice(["kitchen", "bedroom", "office", "bathroom", "hall", "garage"]),
            ),
            _p("on", "on state enabled", "boolean", values.boolean),
            _p("level", "brightness level", "integer", values.integer, False),
        ),
        asks=("Set the light in the {room} to {on}.", "Light in the {room}: {on}, brightness {level}."),
        wish="the light of the {room}",
        result=(("ok", lambda r: True),),
        answers=("The light in the {room} is set.", "Done: {room}."),
    ),
    Concept(
        names=("run_query", "sql", "query_database", "execute_sql", "runQuery"),
        about=("Run a query on a table", "Count rows of a table"),
        parameters=(
            _p("table", "table table_name", "string", values.word),
            _p("filter", "filter where conditions", "object", values.mapping),
            _p("limit", "limit max_rows", "integer", _small, False),
        ),
        asks=(
            "Query the table {table} with the filter {filter}.",
            "Get rows of {table} where {filter}, limit {limit}.",
            "Look in table {table} for {filter}.",
        ),
        wish="rows of {table}",
        result=(("rows", values.integer),),
        answers=("The table {table} has {rows} such rows.", "I found {rows} rows."),
    ),
    Concept(
        names=("get_order", "order_status", "track_order", "lookup_order"),
        about=("Look up an order", "Status of an order by id"),
        parameters=(_p("id", "order_id id order number", "string", values.identifier),),
        asks=("Where is my order {id}?", "What is the status of order {id}?", "Track {id} please."),
        wish="the status of order {id}",
        result=(
            ("status", lambda r: r.choice(("shipped", "delivered", "pending", "cancelled"))),
            ("date", values.date),
        ),
        answers=("Order {id} is {status} ({date}).", "Your order is {status} since {date}."),
    ),
    Concept(
        names=("get_user", "find_contact", "lookup_person", "getContact"),
        about=("Find a contact by name", "Look up a person"),
        parameters=(_p("name", "name person contact", "string", values.person),),
        asks=("What is the email of {name}?", "Find the contact {name}.", "Look up {name}, please."),
        wish="the contact {name}",
        result=(("email", values.email), ("phone", values.integer)),
        answers=("{name} has the email {email}.", "{name}: {email}, phone {phone}."),
    ),
    Concept(
        names=("delete_items", "remove_items", "bulk_delete", "deleteRecords"),
        about=("Delete items by number", "Remove several records"),
        parameters=(
            _p(
                "ids",
                "ids items numbers",
                "array",
                lambda r: [values.integer(r) for _ in range(r.randint(2, 4))],
            ),
            _p("force", "force confirm", "boolean", values.boolean, False),
        ),
        asks=("Delete the items {ids}.", "Remove {ids}.", "Delete {ids} with force {force}."),
        wish="to delete {ids}",
        result=(("deleted", _small),),
        answers=("{deleted} items were deleted.", "Done, {deleted} deleted."),
    ),
)
