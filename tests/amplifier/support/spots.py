"""The places in a file where it can be blown up, through every layer of packing and checksums.

A spot knows how the whole file looks with something else in it: what is around it is packed again,
and the checksums of a document fit.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from seamark._common.json_documents import is_sealed, seal, unseal
from seamark.checkpoint_dir.formats import lz4_blocks
from seamark.errors import SeamarkError
from seamark.state.lcb1 import MAGIC, batch_version, decode_batch, encode_batch
from seamark.state.pack import PackBuilder, decode_pack
from seamark.store.index_parts import INDEX
from tests.amplifier.support.values import blown_up
from tests.test_limits import lz4_file

Wrap = Callable[[bytes], bytes]

_SENTINEL: Final = "\ue000here\ue000"
_VERSIONED: Final = re.compile(rb"v[0-9]+\n")
_EDGE: Final = 64
_LARGEST_PLAIN: Final = 1 << 16


class Spot(NamedTuple):
    """A place in a file."""

    where: str
    changes: Callable[[int], Iterator[tuple[str, Callable[[], bytes]]]]
    """By the number of bytes that may be stored: how it is blown up, and the whole file."""


def spots(data: bytes, where: str = "", wrap: Wrap = bytes) -> Iterator[Spot]:
    """All spots of a file; what is packed inside has its own."""
    if is_sealed(data):
        yield from spots(unseal(data), where, lambda made: wrap(_sealed(made)))
        return
    if data.startswith(b"PK"):
        yield from _in_zip(data, where, wrap)
    elif data.startswith(b"LZ4Block"):
        plain = lz4_blocks.unpacked(data)
        yield from spots(plain, f"{where} lz4", lambda made: wrap(lz4_file(*_chunks(made))))
    elif data.startswith(MAGIC):
        yield from _in_pack(data, where, wrap)
    elif data.startswith(b"\x1f\x8b"):
        yield from spots(
            gzip.decompress(data), f"{where} gzip", lambda made: wrap(gzip.compress(made, 6))
        )
    elif head := _VERSIONED.match(data):
        yield from _in_lines(data, where, wrap, head.end())
        return
    elif (document := _document(data)) is not None:
        yield from _in_document(document, where, lambda text: wrap(_encoded(text)))
    elif b"\n" in data and all(_document(line) is not None for line in data.splitlines()):
        yield from _in_lines(data, where, wrap, 0)
        return
    yield Spot(f"{where} as bytes", lambda size: _binary(data, wrap, size))


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _sealed(document: bytes) -> bytes:
    return seal(document) if document.endswith(b"}") else document


def _chunks(data: bytes) -> list[bytes]:
    return [data[at : at + (1 << 25)] for at in range(0, len(data), 1 << 25)] or [b""]


def _document(data: bytes) -> Any:
    if data[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(data)
    except ValueError:
        return None


# documents


def _in_document(
    document: Any, where: str, encode: Callable[[str], bytes], seen: set[str] | None = None
) -> Iterator[Spot]:
    seen = set() if seen is None else seen
    for path, value, put in _values(document, "", lambda other: other):
        if path in seen:
            continue
        seen.add(path)

        def with_text(text: str, put: Callable[[Any], Any] = put) -> bytes:
            whole = json.dumps(put(_SENTINEL), separators=(",", ":"))
            return encode(whole.replace(json.dumps(_SENTINEL), text))

        def changes(
            size: int, value: Any = value, with_text: Callable[[str], bytes] = with_text
        ) -> Iterator[tuple[str, Callable[[], bytes]]]:
            for name, text in blown_up(json.dumps(value), size):
                yield name, lambda text=text: with_text(text())  # type: ignore[misc]

        yield Spot(f"{where}{path}", changes)
        if isinstance(value, str):
            yield from _in_text(value, f"{where}{path}", with_text)


def _in_text(value: str, where: str, with_text: Callable[[str], bytes]) -> Iterator[Spot]:
    if (inner := _document(value.encode(errors="replace"))) is not None:
        yield from _in_document(inner, f"{where} inside", lambda text: with_text(json.dumps(text)))
        return
    try:
        data = base64.b64decode(value, validate=True)
    except ValueError:
        return
    if data.startswith((MAGIC, b"PK", b"{")):

        def wrap(made: bytes) -> bytes:
            return with_text(f'"{base64.b64encode(made).decode()}"')

        yield from spots(data, f"{where} base64", wrap)


def _values(
    value: Any, path: str, put: Callable[[Any], Any]
) -> Iterator[tuple[str, Any, Callable[[Any], Any]]]:
    """Each value inside of another: where it is, and how the whole looks with another one."""
    yield path, value, put
    if isinstance(value, Mapping):
        for number, (name, inner) in enumerate(value.items()):
            # one member of many that have numbers or ids as names stands for all
            shown = name if re.fullmatch(r"[a-zA-Z_][\w.-]{0,40}", name) else "*"

            def member(other: Any, name: str = name) -> Any:
                return put({**value, name: other})

            yield from _values(inner, f"{path}.{shown}", member)
            if number > 60:
                break
    elif isinstance(value, list):
        for inner in value[:3]:

            def item(other: Any, inner: Any = inner) -> Any:
                return put([other if each is inner else each for each in value])

            yield from _values(inner, f"{path}[]", item)


# logs


def _in_lines(data: bytes, where: str, wrap: Wrap, start: int) -> Iterator[Spot]:
    head, lines = data[:start], data[start:].split(b"\n")
    for number, line in enumerate(lines[:4]):

        def put(other: bytes, number: int = number) -> bytes:
            return wrap(head + b"\n".join([*lines[:number], other, *lines[number + 1 :]]))

        if (document := _document(line)) is not None:

            def with_text(text: str, put: Wrap = put) -> bytes:
                return put(_encoded(text))

            yield from _in_document(document, f"{where} line {number}", with_text)

        def repeated(
            size: int, line: bytes = line, put: Wrap = put
        ) -> Iterator[tuple[str, Callable[[], bytes]]]:
            many = size // (len(line) + 1)
            yield "the line very often", lambda: put(b"\n".join([line] * many))
            for end in (b"\n", b"\r", b"-\n", b"{}\n", b"\xe2\x80\xa8", b"0\n", b"[]\n", b"\xff"):
                yield f"many {end!r}", lambda end=end: put(end * (size // len(end)))  # type: ignore[misc]

        yield Spot(f"{where} line {number}", repeated)


# packed files


def _in_zip(data: bytes, where: str, wrap: Wrap) -> Iterator[Spot]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    for name, member in members.items():

        def put(made: bytes, name: str = name) -> bytes:
            return wrap(_zipped({**members, name: made}))

        yield from spots(member, f"{where} {name}", put)

    def more(size: int) -> Iterator[tuple[str, Callable[[], bytes]]]:
        many = size // 100

        yield (
            "many members",
            lambda: wrap(_zipped({**members, **{f"{n}.x": b"" for n in range(many)}})),
        )
        yield (
            "long names",
            lambda: wrap(_zipped({**members, **{f"{n}{'n' * 60_000}": b"" for n in range(10)}})),
        )
        yield (
            "many folders",
            lambda: wrap(_zipped({**members, **{"a/" * 30_000 + str(n): b"" for n in range(10)}})),
        )
        yield "a comment", lambda: wrap(_zipped(members, comment=b"PK\5\6" * 16_000))

    yield Spot(f"{where} members", more)


def _zipped(members: Mapping[str, bytes], comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
        archive.comment = comment[:65_535]
    return out.getvalue()


def _in_pack(data: bytes, where: str, wrap: Wrap) -> Iterator[Spot]:
    version = batch_version(data)
    entries = dict(decode_pack(data) if version == 3 else decode_batch(data))

    def rebuilt(made: Mapping[str, bytes]) -> bytes:
        if version != 3:
            return wrap(encode_batch(made.items(), version))
        builder = PackBuilder()
        builder.add_all(list(made), list(made.values()))
        return wrap(b"".join(builder.finish()))

    seen = set()
    for name, entry in entries.items():
        kind = re.sub(r"\d+", "#", name)
        if kind in seen:
            continue
        seen.add(kind)

        def put(made: bytes, name: str = name) -> bytes:
            return rebuilt({**entries, name: made})

        if name == INDEX:
            yield from _in_msgpack(entry, f"{where} {kind}", put)
        else:
            yield from spots(entry, f"{where} {kind}", put)

    def names(size: int) -> Iterator[tuple[str, Callable[[], bytes]]]:
        entry, many = next(iter(entries.values())), size // 600
        numbered: dict[str, Callable[[int], str]] = {
            "many entries": lambda n: f"offsets/{n + 1_000}",
            "many states": lambda n: f"state/0/{n}/1.delta",
            "many operators": lambda n: f"state/{n}/0/1.delta",
            "many stores": lambda n: f"state/0/0/s{n}/1.delta",
            "many sources": lambda n: f"sources/{n}/0",
            "many schemas": lambda n: f"state/0/_stateSchema/default/{n}_a",
            "deep paths": lambda n: "sources/0/" + "a/" * 2_000 + str(n),
            "versions far away": lambda n: f"state/0/{n % 9}/{10**17 + n}.delta",
        }
        for kind, made in numbered.items():

            def with_more(made: Callable[[int], str] = made) -> bytes:
                return rebuilt({**entries, **{made(n): entry[:20] for n in range(many)}})

            yield kind, with_more
        yield "a long name", lambda: rebuilt({**entries, "a." * (size // 2): entry})

    yield Spot(f"{where} entries", names)


def _in_msgpack(data: bytes, where: str, wrap: Wrap) -> Iterator[Spot]:
    """An index, which has no JSON in it: what JSON cannot say is left out."""
    value = msgspec.msgpack.decode(data)
    for path, inner, put in _values(value, "", lambda other: other):

        def changes(
            size: int, inner: Any = inner, put: Callable[[Any], Any] = put
        ) -> Iterator[tuple[str, Callable[[], bytes]]]:
            many = size // max(len(msgspec.msgpack.encode(inner)), 1)
            if isinstance(inner, bytes):
                yield "long bytes", lambda: wrap(msgspec.msgpack.encode(put(bytes(size))))
            else:
                for name, text in blown_up(json.dumps(inner, default=str), size):

                    def made(text: Callable[[], str] = text) -> bytes:
                        return wrap(msgspec.msgpack.encode(put(json.loads(text()))))

                    yield name, made
            yield "often", lambda: wrap(msgspec.msgpack.encode(put([inner] * many)))

        yield Spot(f"{where}{path}", changes)


# bytes


def _binary(data: bytes, wrap: Wrap, size: int) -> Iterator[tuple[str, Callable[[], bytes]]]:
    yield "zeros", lambda: wrap(bytes(size))
    yield "a thousand times as many zeros", lambda: wrap(bytes(1_000 * size // 10))
    yield "nothing", lambda: wrap(b"")
    yield "half of it", lambda: wrap(data[: len(data) // 2])
    if data:
        yield "often", lambda: wrap(data * max(size // len(data), 2))
        yield "zeros after it", lambda: wrap(data + bytes(size))
        yield "zeros before its end", lambda: wrap(data[:-4] + bytes(size) + data[-4:])
    yield "all ones", lambda: wrap(b"\xff" * size)
    yield "ones in lengths", lambda: wrap(struct.pack(">i", 1) * (size // 4))
    yield "deep", lambda: wrap(b"[" * size)
    for at in _offsets(len(data)):
        for width in (1, 2, 4, 8):
            for name, part in (
                ("ones", b"\xff" * width),
                ("the most, last first", b"\xff" * (width - 1) + b"\x7f"),
                ("the most, first first", b"\x7f" + b"\xff" * (width - 1)),
            ):

                def changed(at: int = at, part: bytes = part) -> bytes:
                    return wrap(data[:at] + part + data[at + len(part) :])

                yield f"{width} {name} at {at}", changed


def _offsets(size: int) -> list[int]:
    """The ends of a file, where its lengths and counts are, and some places between."""
    near = [*range(min(size, _EDGE)), *range(max(size - _EDGE, 0), size)]
    return sorted({*near, *range(0, size, max(size // 32, 1))})


def readable(data: bytes) -> list[Spot]:
    """The spots of a file; those of its bytes alone when it is none of the formats."""
    try:
        return list(spots(data))
    except (SeamarkError, ValueError, zipfile.BadZipFile, OSError):
        return [Spot(" as bytes", lambda size: _binary(data, bytes, size))]
