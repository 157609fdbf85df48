"""Random values that a user may mention: what nano must learn to copy exactly."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable


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

Rng = random.Random
Maker = Callable[[Rng], object]


def pseudo_word(rng: Rng) -> str:
    """An invented word: copying is the only way to write it."""
    word = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 4)))
    return word + rng.choice(("", "", "n", "r", "s", "x"))


def word(rng: Rng) -> str:
    """A known word or, a quarter of the time, an invented one."""
    return pseudo_word(rng) if rng.random() < 0.25 else rng.choice(WORDS)


def phrase(rng: Rng) -> str:
    """Two to five words."""
    return " ".join(word(rng) for _ in range(rng.randint(2, 5)))


def city(rng: Rng) -> str:
    """A city, one in six invented."""
    return pseudo_word(rng).capitalize() if rng.random() < 0.17 else rng.choice(CITIES)


def person(rng: Rng) -> str:
    """A first name, sometimes with a last name."""
    first = rng.choice(FIRST_NAMES)
    return f"{first} {rng.choice(LAST_NAMES)}" if rng.random() < 0.4 else first


def integer(rng: Rng) -> int:
    """A whole number, small ones more often."""
    return rng.choice((rng.randint(0, 12), rng.randint(0, 100), rng.randint(0, 100), rng.randint(100, 99999)))


def decimal(rng: Rng) -> float:
    """A number with one or two decimals, never a whole one."""
    places = rng.choice((1, 2))
    value = round(rng.uniform(0.1, 500), places)
    return value + 0.5 if value == int(value) else value


def date(rng: Rng) -> str:
    """An ISO date."""
    return f"20{rng.randint(20, 29)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def clock(rng: Rng) -> str:
    """A time of day."""
    return f"{rng.randint(0, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02d}"


def email(rng: Rng) -> str:
    """An address at an example domain."""
    user = rng.choice(FIRST_NAMES).lower()
    more = rng.choice(("", "." + word(rng), str(rng.randint(1, 99))))
    return f"{user}{more}@example.{rng.choice(('com', 'org', 'net'))}"


def identifier(rng: Rng) -> str:
    """A random identifier: UUID, ticket, order or hexadecimal number."""
    kind = rng.randrange(4)
    if kind == 0:
        return str(uuid.UUID(int=rng.getrandbits(128), version=4))
    if kind == 1:
        return f"{word(rng)[:4].upper()}-{rng.randint(10, 9999)}"
    if kind == 2:
        return "".join(rng.choice("0123456789abcdef") for _ in range(rng.choice((6, 8, 12))))
    return f"{rng.choice('ABCDEFGHKLMNPQRSTUVWXYZ')}{rng.randint(100, 99999)}"


def path(rng: Rng) -> str:
    """A file path, absolute or relative."""
    parts = [word(rng) for _ in range(rng.randint(1, 3))]
    return rng.choice(("/", "", "./", "/home/", "/var/")) + "/".join(parts) + "." + rng.choice(EXTENSIONS)


def han(rng: Rng) -> str:
    """A short Chinese or Japanese string."""
    return "".join(rng.choice(HAN + KANA if rng.random() < 0.3 else HAN) for _ in range(rng.randint(1, 3)))


def quoted(rng: Rng) -> str:
    """Text with quotation marks, ampersands or angle brackets inside."""
    a, b = word(rng), word(rng)
    return rng.choice(
        (
            f'{a} "{b}"',
            f"<{a}>{b}</{a}>",
            f"{a} & {b}",
            f"'{a}' or \"{b}\"",
            f"{a} <{b}@example.com>",
            f"{a} < {b}",
        )
    )


def escaped(rng: Rng) -> str:
    """JSON as a string value."""
    return json.dumps({word(rng): rng.choice((word(rng), integer(rng), True))})


def text(rng: Rng) -> str:
    """Any string of those above."""
    makers = (word, word, phrase, phrase, person, city, identifier, path, han, quoted, escaped, date, email)
    return rng.choice(makers)(rng)


def boolean(rng: Rng) -> bool:
    """True or False."""
    return rng.random() < 0.5


def array(rng: Rng) -> list:
    """Two to four values of one kind."""
    maker: Maker = rng.choice((word, integer, city, person, pseudo_word))
    return [maker(rng) for _ in range(rng.randint(2, 4))]


def mapping(rng: Rng) -> dict:
    """A flat object of one to three entries."""
    keys = rng.sample(WORDS, rng.randint(1, 3))
    return {key: rng.choice((word, integer, boolean))(rng) for key in keys}
