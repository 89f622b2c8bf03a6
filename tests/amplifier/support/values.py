"""What a field of somebody else's file can hold instead: little to store, and much to work on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

NUMBERS: Final = {
    "10^18": "1000000000000000000",
    "10^400": "1" + "0" * 400,
    "10^5000": "1" + "0" * 5_000,
    "the most in 64 bits": str(2**64 - 1),
    "10^8": "100000000",
    "3 million": "3000000",
    "negative": "-9223372036854775808",
    "a fraction": "1.5e300",
    "endless": "1e999",
    "no number": "NaN",
    "nothing": "null",
}

PIECES: Final = {
    "one letter": "a",
    "letters and dots": "a.",
    "slashes": "/",
    "folders": "a/",
    "quotes": "'\"",
    "accents": "e\u0301",
    "accents alone": "\u0301",
    "new lines": "\n",
    "blanks": " ",
    "digits": "9",
    "dashes": "-",
    "escapes": "\x1b[31m",
    "controls": "\x01",
    "wide": "\u4e2d",
    "surrogates": "\ud800",
    "backslashes": "\\",
    "percents": "%2F",
    "braces": "{[(",
    "JSON inside": '{"a":',
    "a JSON list inside": "[],",
    "passwords": "password=a&",
    "logins": "s3://a:b@",
    "schemes": "a://",
    "equals": "a=b,",
    "types": "struct<a:",
    "arrays": "array<",
    "stars": "*{a,",
    "commas": ",",
    "colons": ":",
    "base64": "AAAA",
}


Text = Callable[[], str]
"""A JSON text, made when it is asked for."""


def _text(piece: str, size: int) -> str:
    return json.dumps(piece * (size // (len(json.dumps(piece)) - 2)))


def _members(size: int, one: str) -> str:
    each = max(len(one) + 10, 12)
    return "{" + ",".join(f'"m{number}":{one}' for number in range(size // each)) + "}"


def _shapes(size: int) -> dict[str, Callable[[str], str]]:
    return {
        "many of it": lambda own: "[" + ",".join([own] * (size // (len(own) + 1))) + "]",
        "many members of it": lambda own: _members(size, own),
        "a name very often": lambda own: (
            "{" + ",".join([f'"a":{own}'] * (size // (len(own) + 5))) + "}"
        ),
        "deep lists": lambda own: "[" * 10_000 + "]" * 10_000,
        "lists below 900": lambda own: "[" * 900 + "]" * 900,
        "deep objects": lambda own: '{"a":' * 10_000 + "1" + "}" * 10_000,
        "objects below 900": lambda own: '{"a":' * 900 + "1" + "}" * 900,
        "empty lists": lambda own: "[" + ",".join(["[]"] * (size // 3)) + "]",
        "empty objects": lambda own: "[" + ",".join(["{}"] * (size // 3)) + "]",
        "many numbers": lambda own: "[" + ",".join(["1"] * (size // 2)) + "]",
        "many texts": lambda own: "[" + ",".join(['"a"'] * (size // 4)) + "]",
        "many pairs": lambda own: "[" + ",".join(['["a",1]'] * (size // 8)) + "]",
        "long names": lambda own: (
            "{" + ",".join(f'"{"n" * 1_000}{n}":{own}' for n in range(size // 2_010)) + "}"
        ),
        "one long name": lambda own: '{"' + "a." * (size // 2) + '":' + own + "}",
        "numbers as names": lambda own: (
            "{" + ",".join(f'"{n}":{n}' for n in range(size // 14)) + "}"
        ),
        "a long name above many": lambda own: (
            '{"'
            + "n" * (size // 4)
            + '":{'
            + ",".join(f'"{n}":1' for n in range(size // 20))
            + "}}"
        ),
    }


def blown_up(own: str, size: int) -> Iterator[tuple[str, Text]]:
    """What may stand for a value, given as JSON text, and how each is called."""
    own = own if len(own) < size // 10 else "1"
    for name, number in NUMBERS.items():
        yield name, partial(str, number)
    for name, piece in PIECES.items():
        yield name, partial(_text, piece, size)
    for name, made in _shapes(size).items():
        yield name, partial(made, own)
