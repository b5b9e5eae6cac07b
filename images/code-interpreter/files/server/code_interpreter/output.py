"""The lines that a run sends to its client: one JSON object each."""

import json
import math
import time

# The kinds of data of a result, by their MIME types. All others are `extra`.
KINDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
# Kinds whose data is base64, in which line ends mean nothing.
ENCODED = {"png", "jpeg", "pdf"}


def started(count):
    return {"type": "number_of_executions", "execution_count": count}


def text(stream, chunk):
    """A piece of what the code printed; `stream` is `stdout` or `stderr`."""
    return {"type": stream, "text": chunk, "timestamp": time.time_ns()}


def error(name, value, traceback):
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def keepalive():
    return {"type": "keepalive"}


def end():
    return {"type": "end_of_execution"}


def result(bundle, is_main):
    """The line for a bundle of representations by MIME type; `is_main` if it is the value of the code."""
    line = {"type": "result", "is_main_result": is_main}
    extra = {}
    for mime, data in bundle.items():
        kind = KINDS.get(mime)
        if kind is None:
            extra[mime] = data
        elif kind in ENCODED and isinstance(data, str):
            line[kind] = data.strip()
        else:
            line[kind] = data
    if extra:
        line["extra"] = extra
    return line


def unquoted(shown):
    """The representation of a Python string without its quotes."""
    for quote in ("'", '"'):
        if len(shown) >= 2 and shown[0] == quote == shown[-1]:
            return shown[1:-1]
    return shown


def encode(line):
    """The bytes of a line. Clients split lines at any character that Unicode calls a line end, so all are escaped."""
    line = {key: value for key, value in line.items() if value is not None}
    try:
        whole = json.dumps(line, allow_nan=False, separators=(",", ":"))
    except ValueError:
        whole = json.dumps(finite(line), separators=(",", ":"))
    return whole.encode("ascii") + b"\n"


def finite(value):
    """A copy with null for the numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(member) for member in value]
    return value
