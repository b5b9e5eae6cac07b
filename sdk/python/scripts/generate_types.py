"""Generates `types.py` and `_operations.py` from the OpenAPI document.

    python scripts/generate_types.py            # writes the files
    python scripts/generate_types.py --check    # fails if they are out of date

Types of responses and parts of requests become frozen data classes. Request bodies themselves do
not: methods of the client have a parameter for each of their fields.
"""

from __future__ import annotations

import json
import keyword
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from generated import PACKAGE, REPOSITORY, main

Schema = dict[str, Any]

DOCUMENT = REPOSITORY / "docs" / "reference" / "openapi.json"

# Schemas whose name is better used for the object that users work with.
RENAMED = {
    "Ensured": "EnsuredInfo",
    "Port": "PortInfo",
    "Process": "ProcessInfo",
    "Sandbox": "SandboxInfo",
    "Service": "ServiceInfo",
    "Watcher": "WatcherInfo",
}

# Schemas that users do not see: the client has another form of them, or returns their only field.
HIDDEN = {
    "Binary",
    "CheckpointTaken",
    "Cloned",
    "CommandEvent",
    "Encoding",
    "ExecResult",
    "ForkedChild",
    "Killed",
    "LostOutput",
    "NamedSecret",
    "OutputChunk",
    "OutputEvent",
    "Problem",
    "ProcessStarted",
    "ResizeRequest",
    "Restarted",
    "Secret",
    "Stdin",
    "StdinWritten",
    "TerminalMessage",
    "Text",
    "Time",
}

# Annotations of schemas that are JSON strings.
TEXTS = {"NamedSecret": "str | None", "Secret": "str", "Text": "str", "Time": "datetime"}

# Fields that must not appear in logs of the objects that have them.
NOT_SHOWN = {("CreatedKey", "key"), ("GitSource", "token"), ("PortInfo", "token"), ("Webhook", "secret")}

HEADERS = ("Idempotency-Key", "If-Match", "X-Dormouse-Wake")

WIDTH = 100


class Document:
    """The OpenAPI document, with the questions that the generator asks."""

    def __init__(self, text: str) -> None:
        self.root: Schema = json.loads(text)
        self.schemas: dict[str, Schema] = self.root["components"]["schemas"]

    def operations(self) -> Iterator[tuple[str, str, Schema]]:
        for path, methods in self.root["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def request_bodies(self) -> set[str]:
        """Names of the schemas that are whole bodies of requests."""
        return {
            reference(content["schema"])
            for _, _, operation in self.operations()
            for content in operation.get("requestBody", {}).get("content", {}).values()
        }

    def responses(self) -> set[str]:
        """Names of the schemas that occur in responses."""
        found: set[str] = set()
        for _, _, operation in self.operations():
            for response in operation["responses"].values():
                for content in response.get("content", {}).values():
                    found |= self.reachable(content["schema"])
        return found

    def reachable(self, schema: Any) -> set[str]:
        """Names of all schemas that a schema mentions, directly or not."""
        found: set[str] = set()
        waiting = [schema]
        while waiting:
            for name in references(waiting.pop()):
                if name not in found:
                    found.add(name)
                    waiting.append(self.schemas[name])
        return found

    def merged(self, schema: Schema) -> Schema:
        """A schema that extends others, as one object."""
        parts = [self.schemas[reference(part)] if "$ref" in part else part for part in schema["allOf"]]
        return {
            "description": schema["description"],
            "properties": {k: v for part in parts for k, v in part["properties"].items()},
            "required": [name for part in parts for name in part.get("required", [])],
        }

    def is_list(self, name: str) -> bool:
        """Whether a schema is only an envelope of a list, which the client opens."""
        properties = self.schemas[name].get("properties", {})
        rest = {field for field in properties if field not in ("next", "more", "oldest")}
        return len(rest) == 1 and properties[rest.pop()].get("type") == "array"


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema and "/schemas/" in schema["$ref"]:
            yield reference(schema)
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def reference(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rsplit("/", 1)[-1]


class Types:
    """Writes `types.py`."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.responses = document.responses()
        # A union of texts and objects stays as it is in JSON.
        self.raw = {"Egress"} | document.reachable(document.schemas["Egress"])

    def text(self) -> str:
        bodies = self.document.request_bodies()
        in_requests = set().union(
            *(self.document.reachable(self.document.schemas[name]) for name in bodies),
            *(self.document.reachable(o.get("parameters", [])) for _, _, o in self.document.operations()),
        )
        hidden = HIDDEN | (bodies - self.responses - in_requests)
        definitions = [
            (RENAMED.get(name, name), self.definition(name, schema))
            for name, schema in self.document.schemas.items()
            if name in (self.responses | in_requests) - hidden
            and not (name in self.responses and self.document.is_list(name))
        ]
        # Aliases are evaluated when the module is imported, so they go before their users.
        definitions.sort(key=lambda item: (" = Literal[" not in item[1], item[0]))
        return "\n\n".join([TYPES_HEAD, *(text for _, text in definitions)])

    def definition(self, name: str, schema: Schema) -> str:
        title = RENAMED.get(name, name)
        if "enum" in schema:
            return self.literal(title, schema)
        if name == "Egress":
            return self.egress(schema)
        if name == "EgressRule":
            return self.tagged(title, schema)
        if "allOf" in schema:
            return self.data_class(title, self.document.merged(schema))
        if name in self.raw:
            return self.typed_dict(title, schema)
        if "oneOf" in schema:
            return self.union(title, schema)
        return self.data_class(title, schema)

    def literal(self, title: str, schema: Schema) -> str:
        values = ", ".join(f'"{value}"' for value in schema["enum"])
        line = f"{title} = Literal[{values}]\n"
        if len(line) > WIDTH:
            line = f"{title} = Literal[\n" + "".join(f'    "{v}",\n' for v in schema["enum"]) + "]\n"
        return line + docstring(schema.get("description", ""), 0)

    def data_class(self, title: str, schema: Schema) -> str:
        lines = ["@dataclass(frozen=True, kw_only=True)\n", f"class {title}:\n"]
        lines.append(docstring(schema.get("description", ""), 4))
        for field, value in schema.get("properties", {}).items():
            lines.append("\n" + self.field(title, field, value, field in schema.get("required", [])))
        return "".join(lines)

    def field(self, owner: str, field: str, schema: Schema, required: bool) -> str:
        kind = self.annotation(schema)
        is_request = owner not in {RENAMED.get(name, name) for name in self.responses}
        if is_request and field.endswith("_secs"):
            kind = kind.replace("float", "Duration")
        if is_request and field.endswith("_bytes"):
            kind = kind.replace("int", "Size")
        default = ""
        if not required:
            default = self.default(kind, is_request)
            if default == " = None" and not kind.endswith("| None"):
                kind = f"{kind} | None"
        if (owner, field) in NOT_SHOWN:
            default = " = field(repr=False)" if required else " = field(default=None, repr=False)"
        name = f"{field}_" if keyword.iskeyword(field) else field
        return f"    {name}: {kind}{default}\n" + docstring(description(schema), 4)

    def default(self, kind: str, is_request: bool) -> str:
        """The default of a field that need not be present. Requests leave such a field out."""
        container = kind.partition("[")[0]
        if container in ("list", "dict") and not is_request and not kind.endswith("| None"):
            return f" = field(default_factory={container})"
        return " = None"

    def typed_dict(self, title: str, schema: Schema) -> str:
        required = schema.get("required", [])
        fields = {
            name: f"\n    {name}: {self.annotation(value)}\n" + docstring(description(value), 4)
            for name, value in schema["properties"].items()
        }
        optional = [text for name, text in fields.items() if name not in required]
        always = [text for name, text in fields.items() if name in required]
        about = docstring(schema.get("description", ""), 4)
        if not optional:
            return f"class {title}(TypedDict):\n{about}" + "".join(always)
        base = f"class _{title}(TypedDict):" + "".join(always)
        return f"{base}\n\nclass {title}(_{title}, total=False):\n{about}" + "".join(optional)

    def tagged(self, title: str, schema: Schema) -> str:
        """A union of objects with one property each."""
        parts, names = [], []
        for variant in schema["oneOf"]:
            (tag,) = variant["properties"]
            names.append(f"{title}{tag.capitalize()}")
            parts.append(self.typed_dict(names[-1], variant))
        alias = f"{title} = {' | '.join(names)}\n" + docstring(schema["description"], 0)
        return "\n\n".join([*parts, alias])

    def union(self, title: str, schema: Schema) -> str:
        alias = " | ".join(self.annotation(variant) for variant in schema["oneOf"])
        return f"{title} = {alias}\n" + docstring(schema["description"], 0)

    def egress(self, schema: Schema) -> str:
        words = [variant["enum"][0] for variant in schema["oneOf"] if "enum" in variant]
        objects = {"oneOf": [v for v in schema["oneOf"] if "enum" not in v], "description": ""}
        parts = self.tagged("Egress", objects).rsplit("\n\n", 1)[0]
        literal = ", ".join(f'"{word}"' for word in words)
        meanings = "".join(
            f"\n- `{v['enum'][0]}`: {flat(v['description'])}" for v in schema["oneOf"] if "enum" in v
        )
        note = schema["description"] + "\n" + meanings
        alias = f"Egress = Literal[{literal}] | EgressAllow | EgressOrdered\n"
        return f"{parts}\n\n{alias}" + docstring(note, 0)

    def annotation(self, schema: Schema) -> str:
        if "$ref" in schema:
            name = reference(schema)
            return TEXTS.get(name, RENAMED.get(name, name))
        if "oneOf" in schema:
            (inner,) = (part for part in schema["oneOf"] if part.get("type") != "null")
            return f"{self.annotation(inner)} | None"
        kind = schema.get("type", "object")
        if isinstance(kind, list):
            (inner,) = (name for name in kind if name != "null")
            return f"{self.annotation({**schema, 'type': inner})} | None"
        if kind == "array":
            return f"list[{self.annotation(schema['items'])}]"
        if kind == "object":
            return f"dict[str, {self.annotation(schema['additionalProperties'])}]"
        return {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[kind]


def description(schema: Schema) -> str:
    own = schema.get("description", "")
    return own or next((part["description"] for part in schema.get("oneOf", []) if "description" in part), "")


def flat(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)


def docstring(text: str, indent: int) -> str:
    """A docstring, filled to the width of a line."""
    if not text:
        return ""
    pad = " " * indent
    paragraphs = []
    for paragraph in text.split("\n\n"):
        parts = re.split(r"\n(?=- )", paragraph.strip("\n"))
        paragraphs.append("\n".join(fill(part, pad) for part in parts))
    body = "\n\n".join(paragraphs)
    closing = f'\n{pad}"""' if "\n" in body else '"""'
    return f'{pad}"""{body.lstrip()}{closing}\n'


def fill(text: str, pad: str) -> str:
    return textwrap.fill(
        flat(text),
        WIDTH - 3,
        initial_indent=pad,
        subsequent_indent=pad + ("  " if text.startswith("- ") else ""),
        break_long_words=False,
        break_on_hyphens=False,
    )


def operations(document: Document) -> str:
    """Writes `_operations.py`."""
    parts = [OPERATIONS_HEAD]
    for method, path, operation in document.operations():
        identifier = operation["operationId"]
        constant = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", identifier).upper()
        headers = {parameter["name"] for parameter in operation.get("parameters", [])}
        accepted = [f'"{header}"' for header in HEADERS if header in headers]
        arguments = [f'"{identifier}"', f'"{method}"', f'"{path}"']
        arguments += [f"accepts=({', '.join(accepted)},)"] if accepted else []
        line = f"{constant} = Operation({', '.join(arguments)})\n"
        if len(line) > WIDTH + 1:
            line = f"{constant} = Operation(\n    {', '.join(arguments)}\n)\n"
            if max(map(len, line.splitlines())) > WIDTH:
                line = f"{constant} = Operation(\n" + "".join(f"    {a},\n" for a in arguments) + ")\n"
        parts.append(line)
    return "".join(parts)


TYPES_HEAD = '''"""Types of the API. Generated from docs/reference/openapi.json; do not edit.

Fields have their unit in their name, as in the API: `timeout_secs` is a number of seconds, and
`memory_bytes` a number of bytes. Paths and other texts of a sandbox that are not UTF-8 are strings
with surrogates, as in `os`: `os.fsencode` returns their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypedDict

from ._values import Duration, Size
'''

OPERATIONS_HEAD = '''"""The operations of the API. Generated from docs/reference/openapi.json; do not edit."""

from ._request import Operation

'''


def generate() -> dict[Any, str]:
    document = Document(DOCUMENT.read_text())
    return {
        PACKAGE / "types.py": Types(document).text(),
        PACKAGE / "_operations.py": operations(document),
    }


if __name__ == "__main__":
    main(generate)
