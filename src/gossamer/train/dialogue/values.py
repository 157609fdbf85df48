"""Random values that a user may mention: what nano must learn to copy exactly."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Sequence


def listed(text: str, separator: str = " ") -> tuple[str, ...]:
    """The items of a list that is written as one text."""
    return tuple(text.split(separator))


FIRST_NAMES = listed(
    "Anna Ben Carla David Elena Farid Grace Hiro Ines Jonas Karim Lena Marco Nadia Oscar Priya Quentin Rosa "
    "Samir Tara Umar Vera Wang Xenia Yusuf Zoe Alice Bob Chen Diego Emma Felix Greta Hugo Ivan Julia"
)
LAST_NAMES = listed(
    "Smith Garcia Mueller Tanaka Rossi Novak Kim Silva Jensen Okafor Patel Dubois Kowalski Haddad Ivanova "
    "Larsen Moreau Nguyen Olsen Papadopoulos Reyes Schmidt Torres Weber Young Zhang"
)
CITIES = listed(
    "Paris, London, Berlin, Madrid, Rome, Vienna, Prague, Lisbon, Oslo, Stockholm, Helsinki, Dublin, "
    "Athens, Warsaw, Budapest, Zurich, Geneva, Hamburg, Munich, Milan, Naples, Porto, Seville, Lyon, "
    "Nice, Kyoto, Tokyo, Osaka, Seoul, Busan, Beijing, Shanghai, Shenzhen, Hong Kong, Taipei, Bangkok, "
    "Hanoi, Manila, Jakarta, Singapore, Delhi, Mumbai, Chennai, Dhaka, Karachi, Dubai, Tehran, Cairo, "
    "Nairobi, Lagos, Accra, Cape Town, Tunis, Casablanca, New York, Boston, Chicago, Denver, Seattle, "
    "Portland, San Francisco, Los Angeles, San Diego, Austin, Dallas, Houston, Miami, Atlanta, Toronto, "
    "Montreal, Vancouver, Ottawa, Mexico City, Lima, Bogota, Quito, Santiago, Buenos Aires, Sao Paulo, "
    "Sydney, Melbourne, Perth, Auckland, Reykjavik, Kyiv, Riga, Vilnius, Tallinn, Zagreb, Belgrade, "
    "Sofia, Bucharest, Istanbul, Ankara, Tbilisi",
    separator=", ",
)
WORDS = listed(
    "apple river stone cloud paper garden window market bridge silver orange travel winter summer morning "
    "letter number report engine signal pocket mirror castle forest island desert ocean planet rocket "
    "camera guitar violin pencil basket bottle candle carpet dragon falcon tiger rabbit spider turtle "
    "copper marble velvet cotton ginger pepper lemon cherry butter honey bread cheese coffee sugar "
    "yellow purple crimson quiet gentle rapid bright hollow narrow simple clever brave local remote "
    "backup cache config daily draft error event final index input label legacy main monthly node output "
    "primary queue record release sample schema secret server session stable staging status summary table "
    "task temp test token trace update user version weekly worker alpha beta gamma delta"
)
UNITS = ("celsius", "fahrenheit")
HAN = listed(
    "天气 北京 上海 东京 你好 世界 数据 文件 图书 音乐 电影 学习 工作 时间 今天 明天 春天 山水 老师 "
    "朋友 火车 飞机 咖啡 手机 电脑 中文 公园 医院 学校 大学 红色 蓝色 東京 大阪 京都 料理 写真 電車"
)
KANA = listed("さくら ありがとう こんにちは たまご みどり カメラ テスト データ ラーメン ホテル")
EXTENSIONS = ("txt", "csv", "json", "py", "log", "md", "yaml", "png", "pdf", "html")
SYLLABLES = listed(
    "ba be bi bo bu da de di do du fa fe ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu "
    "pa pe pi po ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo wa we xa za zo qua tri pli gro"
)

Maker = Callable[["Draw"], object]
ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
SCRIPTS = ((0xC0, 0xFF), (0x391, 0x3C9), (0x410, 0x44F), (0x3041, 0x3093), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3))
"""First and last code point of Latin with accents, Greek, Cyrillic, Kana, Han, Hangul."""


class Draw(random.Random):
    """A seeded random source that knows which words there are and how hard values may be.

    Args:
        seed: text that fixes every draw.
        words: what `word` chooses from, the most common ones first, which are taken more often.
        difficulty: 0 (short plain values) to 1.
    """

    def __init__(self, seed: str, words: Sequence[str] = WORDS, difficulty: float = 1.0):
        super().__init__(seed)
        self.words = words
        self.difficulty = difficulty

    def __new__(cls, seed: str, *_: object, **__: object) -> Draw:
        """Take only the seed: the base class counts its arguments."""
        return super().__new__(cls, seed)  # pyrefly: ignore

    def word(self) -> str:
        """One of the words; half of the draws come from the first quarter of the list."""
        return self.words[int(len(self.words) * self.random() ** 2)]

    def upto(self, most: int) -> int:
        """1 to `most`, fewer when the difficulty is low; small numbers more often."""
        top = 1 + round((most - 1) * self.difficulty)
        return min(self.randint(1, top), self.randint(1, top) + (self.random() < 0.5))


def pseudo_word(rng: Draw) -> str:
    """An invented word: copying is the only way to write it."""
    word = "".join([rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3 + (rng.difficulty > 0.5)))])
    return word + rng.choice(("", "", "n", "r", "s", "x"))


def word(rng: Draw) -> str:
    """A known word or, one time in eight, an invented one."""
    return pseudo_word(rng) if rng.random() < 0.13 else rng.word()


def phrase(rng: Draw) -> str:
    """Two to five words, sometimes with a capital letter in front."""
    made = " ".join([word(rng) for _ in range(rng.choice((2, 2, 3, 3, 2 + round(3 * rng.difficulty))))])
    kind = rng.random()
    return made.capitalize() if kind < 0.2 else made.title() if kind < 0.3 else made


def city(rng: Draw) -> str:
    """A city, half of them invented."""
    return word(rng).capitalize() if rng.random() < 0.5 else rng.choice(CITIES)


def person(rng: Draw) -> str:
    """A first name, sometimes with a last name; a third invented."""
    first = rng.choice(FIRST_NAMES) if rng.random() < 0.67 else pseudo_word(rng).capitalize()
    last = rng.choice(LAST_NAMES) if rng.random() < 0.67 else word(rng).capitalize()
    return f"{first} {last}" if rng.random() < 0.4 else first


def integer(rng: Draw) -> int:
    """A whole number, small ones more often, sometimes negative."""
    kind = rng.random()
    if kind < 0.25 or rng.difficulty < 0.2:
        return rng.randint(0, 12)
    if kind < 0.7:
        return rng.randint(0, 100)
    if kind < 0.92:
        return rng.randint(100, 99999)
    return -rng.randint(1, 500)


def decimal(rng: Draw) -> float:
    """A number with one to three decimals, never a whole one, sometimes negative."""
    places = rng.choice((1, 2, 2, 3)) if rng.difficulty > 0.3 else 1
    value = round(rng.uniform(0.1, rng.choice((1, 10, 500, 5000))), places)
    value = value + 0.5 if value == int(value) else value
    return -value if rng.random() < 0.12 else value


def date(rng: Draw) -> str:
    """An ISO date."""
    return f"20{rng.randint(20, 29)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def clock(rng: Draw) -> str:
    """A time of day."""
    return f"{rng.randint(0, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02d}"


def moment(rng: Draw) -> str:
    """A date with a time, or a date written another way."""
    day, hour = date(rng), clock(rng)
    year, month, number = day.split("-")
    return rng.choice((f"{day}T{hour}:00Z", f"{day} {hour}", f"{number}.{month}.{year}", f"{month}/{number}"))


def email(rng: Draw) -> str:
    """An address at an example domain or an invented one."""
    user = rng.choice(FIRST_NAMES).lower() if rng.random() < 0.4 else ascii_word(rng)
    more = rng.choice(("", "." + ascii_word(rng), str(rng.randint(1, 99)), f"_{rng.choice(ALPHABET)}"))
    host = "example" if rng.random() < 0.4 else ascii_word(rng)
    return f"{user}{more}@{host}.{rng.choice(('com', 'org', 'net', 'io', 'dev', 'test'))}"


def ascii_word(rng: Draw) -> str:
    """A lower-case word of ASCII letters: what addresses, paths and names in code are made of."""
    for _ in range(3):
        made = word(rng)
        if made.isascii() and made.isalpha():
            return made.lower()
    return pseudo_word(rng)


def unique(rng: Draw) -> str:
    """A UUID."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def mixed(rng: Draw) -> str:
    """Letters of both cases and digits, 5 to 14 characters, sometimes in two parts."""
    made = "".join([rng.choice(ALPHABET) for _ in range(rng.randint(5, 6 + round(8 * rng.difficulty)))])
    cut = rng.randint(2, len(made) - 2)
    return made if rng.random() < 0.6 else made[:cut] + rng.choice("-_.:/") + made[cut:]


def identifier(rng: Draw) -> str:
    """A random identifier: ticket, order, hexadecimal or mixed; rarely a UUID."""
    kind = rng.random()
    if kind < 0.08 and rng.difficulty > 0.5:
        return unique(rng)
    if kind < 0.35:
        return f"{ascii_word(rng)[:4].upper()}-{rng.randint(10, 9999)}"
    if kind < 0.55:
        return "".join([rng.choice("0123456789abcdef") for _ in range(rng.choice((6, 8, 12)))])
    if kind < 0.75:
        return f"{rng.choice(ALPHABET).upper()}{rng.randint(100, 99999)}"
    if kind < 0.85:
        return f"{ascii_word(rng)}{rng.choice('-_.')}{rng.randint(0, 99)}"
    return mixed(rng)


def path(rng: Draw) -> str:
    """A file path, absolute or relative, rarely with backslashes."""
    parts = [ascii_word(rng) for _ in range(rng.randint(1, 1 + round(2 * rng.difficulty)))]
    made = "/".join(parts) + "." + rng.choice((*EXTENSIONS, ascii_word(rng)[:3]))
    if rng.random() < 0.12:
        return f"{rng.choice('CDE')}:\\" + made.replace("/", "\\")
    return rng.choice(("/", "", "./", "~/", "../", "/home/", "/var/")) + made


def url(rng: Draw) -> str:
    """An address of a page, sometimes with a query."""
    scheme, ending = rng.choice(("https", "https", "http", "ftp")), rng.choice(("com", "org", "io"))
    made = f"{scheme}://{ascii_word(rng)}.{ending}"
    made += "".join([f"/{ascii_word(rng)}" for _ in range(rng.randint(0, 2))])
    return made + (f"?{ascii_word(rng)}={rng.choice((word, integer))(rng)}" if rng.random() < 0.3 else "")


def han(rng: Draw) -> str:
    """A short Chinese or Japanese string."""
    return "".join([rng.choice(HAN + KANA if rng.random() < 0.3 else HAN) for _ in range(rng.randint(1, 3))])


def foreign(rng: Draw) -> str:
    """One or two short strings of one script, every character drawn by itself."""
    first, last = rng.choice(SCRIPTS)
    parts = [
        "".join([chr(rng.randint(first, last)) for _ in range(rng.randint(2, 4))])
        for _ in range(rng.randint(1, 2))
    ]
    return " ".join(parts)


def quoted(rng: Draw) -> str:
    """Text with quotation marks, ampersands, angle brackets, backslashes or braces inside."""
    a, b = word(rng), word(rng)
    return rng.choice(
        (
            f'{a} "{b}"',
            f'"{a}" {b}',
            f"<{a}>{b}</{a}>",
            f'<{a} id="{b}">',
            f"{a} & {b}",
            f"'{a}' or \"{b}\"",
            f"{a} <{b}@example.com>",
            f"{a} < {b}",
            f"{a} -> {b}",
            f"{{{a}}} {{{{{b}}}}}",
            f"{a}\\{b}",
            f"\\n{a}\\t{b}",
            f"{a}('{b}')",
            f"[{a}] ({b})",
            f'{a} = "{b}";',
            f"it's {a}, {b}!",
            f"{a}: {b}; {a}",
            f"#{a} @{b} 50% $5",
            f"^{a}.*{b}$",
            f"{a} | {b} > {a}.txt",
        )
    )


def escaped(rng: Draw) -> str:
    """JSON as a string value, rarely escaped once more or with unicode escapes."""
    kind = rng.random()
    if kind < 0.1:
        return json.dumps(quoted(rng))
    if kind < 0.2:
        return json.dumps(foreign(rng)[:3])
    made: object = {word(rng): rng.choice((word(rng), integer(rng), True, None, [integer(rng)]))}
    made = [word(rng), integer(rng)] if kind < 0.3 else made
    return json.dumps(made, ensure_ascii=False, separators=rng.choice((None, (",", ":"))))


def spelled(rng: Draw) -> str:
    """A string that looks like a number, or holds one."""
    return rng.choice(
        (
            f"{rng.randint(0, 99999):05d}",
            f"{rng.randint(1, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}",
            f"+{rng.randint(10, 99)} {rng.randint(100, 999)} {rng.randint(1000, 9999)}",
            f"{integer(rng)} {word(rng)}",
        )
    )


EASY: tuple[Maker, ...] = (word, word, pseudo_word, phrase, person, city)
HARD: tuple[Maker, ...] = (
    identifier,
    identifier,
    identifier,
    mixed,
    path,
    path,
    url,
    email,
    han,
    foreign,
    quoted,
    quoted,
    quoted,
    escaped,
    escaped,
    date,
    moment,
    spelled,
    pseudo_word,
    phrase,
    phrase,
    unique,
)


def text(rng: Draw) -> str:
    """Any string: words, names, phrases and the harder ones."""
    return rng.choice(HARD if rng.random() < 0.5 * rng.difficulty else EASY)(rng)  # pyrefly: ignore


def hard(rng: Draw) -> str:
    """A string that only careful copying gets right."""
    return rng.choice(HARD if rng.random() < 0.2 + rng.difficulty else EASY)(rng)  # pyrefly: ignore


def boolean(rng: Draw) -> bool:
    """True or False."""
    return rng.random() < 0.5


def array(rng: Draw) -> list:
    """One to four values of one kind."""
    maker: Maker = rng.choice(
        (word, word, integer, city, person, pseudo_word, identifier, decimal, ascii_word)
    )
    return [maker(rng) for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))]


def mapping(rng: Draw) -> dict:
    """A flat object of one to three entries."""
    keys = {name(rng): None for _ in range(rng.choice((1, 1, 2, 2, 3)))}
    return {key: rng.choice((word, word, integer, boolean, decimal, phrase, identifier))(rng) for key in keys}


def name(rng: Draw) -> str:
    """A name as code has it: one word, or two joined."""
    made = ascii_word(rng)
    return f"{made}_{ascii_word(rng)}" if rng.random() < 0.25 else made
