"""Values of the API in Python: durations, sizes, times, and data classes from and to JSON."""

from __future__ import annotations

import base64
import dataclasses
import functools
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import IO, Any, TypeVar, Union, cast

T = TypeVar("T")

Duration = timedelta | float
"""A length of time: a `timedelta`, or a number of seconds."""

Size = int | str
"""A number of bytes, or a text such as `"512M"` or `"2G"`, in powers of 1024."""

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""An absolute path in a sandbox."""

Text = str | bytes
"""A text for a sandbox. Bytes need not be UTF-8."""

PIECE_BYTES = 64 * 1024

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def seconds(duration: Duration | None) -> float | None:
    """Convert a duration to a number of seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def size(value: Size | None) -> int | None:
    """Convert a size to a number of bytes."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", value.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(f"{value!r} is not a size: use a number of bytes, or a text such as '512M' or '2G'")
    number, unit = found.groups()
    return round(float(number) * (1 << 10 * _UNITS[unit.upper()]))


def millis(cpus: float | None) -> int | None:
    """Convert a number of CPUs to thousandths of a CPU."""
    return None if cpus is None else round(cpus * 1000)


def text(value: Path | None) -> str | dict[str, str] | None:
    """Convert a text of a sandbox, such as a path, to JSON."""
    if value is None:
        return None
    data = _bytes(os.fspath(value))
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(value: Text) -> bytes:
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value


def command(value: str | Sequence[Text]) -> dict[str, Any]:
    """Convert a command to the fields of a request: a string is a line for the shell."""
    if isinstance(value, str):
        return {"shell": value}
    if isinstance(value, bytes):
        raise TypeError("a command is a string for the shell, or a sequence of arguments")
    return {"argv": [text(argument) for argument in value]}


def split(content: str | bytes | IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    """Yield contents in pieces of limited length."""
    if isinstance(content, (str, bytes)):
        parts: Iterable[bytes] = [content.encode() if isinstance(content, str) else content]
    elif hasattr(content, "read"):
        parts = iter(functools.partial(content.read, PIECE_BYTES), b"")
    else:
        parts = content
    for part in parts:
        for at in range(0, len(part), PIECE_BYTES):
            yield part[at : at + PIECE_BYTES]


def encode(value: Any) -> Any:
    """Convert a value to JSON. Fields of data classes that are None are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name.rstrip("_"): getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _encode_field(name, content) for name, content in fields.items() if content is not None}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, (bytes, os.PathLike)):
        return text(value)
    if isinstance(value, Mapping):
        return {key: encode(content) for key, content in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [encode(item) for item in value]
    return value


def _encode_field(name: str, value: Any) -> Any:
    return size(value) if name.endswith("_bytes") else encode(value)


def decode(kind: type[T], value: Any) -> T:
    """Convert JSON to a type of the API. Unknown fields are ignored."""
    return cast("T", _decoder(cast("Any", kind))(value))


@functools.cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is datetime:
        return _time
    if kind is str:
        return _text
    if dataclasses.is_dataclass(kind):
        return _data_class_decoder(cast("type[Any]", kind))
    if origin is list:
        item = _decoder(arguments[0])
        return lambda values: [item(value) for value in values]
    if origin is dict:
        content = _decoder(arguments[1])
        return lambda values: {key: content(value) for key, value in values.items()}
    if origin in (Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        if len(inner) == 1:
            convert = _decoder(inner[0])
            return lambda value: None if value is None else convert(value)
    return lambda value: value


def _data_class_decoder(kind: type[Any]) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    fields = [(field.name, field.name.rstrip("_")) for field in dataclasses.fields(kind)]

    def build(values: Mapping[str, Any]) -> Any:
        return kind(**{name: _decoder(hints[name])(values[wire]) for name, wire in fields if wire in values})

    return build


def _text(value: str | Mapping[str, str]) -> str:
    if isinstance(value, Mapping):
        return base64.b64decode(value["base64"]).decode(errors="surrogateescape")
    return value


def _time(value: str) -> datetime:
    # Before Python 3.11, fromisoformat accepts neither Z nor other than 3 or 6 digits of a second.
    found = re.fullmatch(r"(.{19})(?:\.(\d+))?(?:Z|\+00:00)", value)
    if found is None:
        raise ValueError(f"{value!r} is not a time in UTC")
    whole, fraction = found.groups()
    micros = int((fraction or "0").ljust(6, "0")[:6])
    return datetime.fromisoformat(whole).replace(microsecond=micros, tzinfo=timezone.utc)
