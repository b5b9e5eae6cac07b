"""The surface of the package: complete, the same for both clients, documented, and up to date."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import generate_sync
import generate_types
import pytest
from generated import PACKAGE, REPOSITORY, stale

import dormouse
import dormouse.errors
import dormouse.tools
import dormouse.types
from dormouse import _environments, _operations
from dormouse._request import Operation

DOCUMENT = json.loads((REPOSITORY / "docs" / "reference" / "openapi.json").read_text())
MODULES = sorted(path.stem for path in (PACKAGE / "_async").glob("[a-z]*.py"))

# Fields that methods do not have as a parameter, with what takes their place.
OTHERWISE = {
    "shell": "a command is a string or a sequence",
    "argv": "a command is a string or a sequence",
    "after": "lists ask for their next page",
    "keep": "one parameter is a time or a word",
    "keep_secs": "one parameter is a time or a word",
}


def test_generated_types_are_up_to_date() -> None:
    assert stale(generate_types.generate()) == []


def test_the_blocking_client_is_up_to_date() -> None:
    assert stale(generate_sync.generate()) == []


@functools.cache
def calls() -> list[tuple[str, str]]:
    """Return each use of an operation in the source, as its id and the text of the method.

    The text includes that of the function that makes the body, if several methods share one.
    """
    ensure_body = inspect.getsource(_environments.ensure_body)
    found = []
    for module in MODULES:
        text = (PACKAGE / "_async" / f"{module}.py").read_text()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            source = ast.get_source_segment(text, node) or ""
            source += ensure_body if "ensure_body(" in source else ""
            for constant in re.findall(r"\bops\.([A-Z_]+)\(", source):
                found.append((getattr(_operations, constant).id, source))
    return found


def documented() -> Iterator[dict[str, Any]]:
    for methods in DOCUMENT["paths"].values():
        yield from methods.values()


def test_every_operation_of_the_api_is_called_by_a_method() -> None:
    assert {identifier for identifier, _ in calls()} == {
        operation["operationId"] for operation in documented()
    }


@pytest.mark.parametrize("operation", list(documented()), ids=lambda operation: str(operation["operationId"]))
def test_every_field_of_a_request_can_be_set(operation: dict[str, Any]) -> None:
    sources = "".join(source for identifier, source in calls() if identifier == operation["operationId"])
    fields = {p["name"] for p in operation.get("parameters", []) if p["in"] == "query"}
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = DOCUMENT["components"]["schemas"][generate_types.reference(content["schema"])]
        fields |= set(schema.get("properties", {}))
    missing = {field for field in fields if f'"{field}"' not in sources and f'"{field}":' not in sources}
    assert missing - set(OTHERWISE) == set()


def members(kind: type) -> dict[str, str]:
    """Return the public members of a class, each with its parameters."""
    found = {}
    for name, value in inspect.getmembers(kind):
        if name.startswith("_") and name not in ("__init__", "__doc__"):
            continue
        parameters = str(list(inspect.signature(value).parameters)) if callable(value) else ""
        found["close" if name == "aclose" else name] = parameters
    return found


def classes(package: str) -> dict[str, type]:
    """Return the public classes that a package of the client defines."""
    modules = [importlib.import_module(f"dormouse.{package}.{module}") for module in MODULES]
    return {
        name.removeprefix("Async"): value
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def test_both_clients_have_the_same_classes() -> None:
    assert set(classes("_async")) == set(classes("_sync"))


@pytest.mark.parametrize("name", sorted(classes("_async")))
def test_both_clients_have_the_same_members(name: str) -> None:
    assert members(classes("_async")[name]).keys() == members(classes("_sync")[name]).keys()
    assert members(classes("_async")[name]) == members(classes("_sync")[name])


@pytest.mark.parametrize("module", [dormouse, dormouse.errors, dormouse.tools], ids=lambda m: str(m.__name__))
def test_everything_public_is_documented(module: ModuleType) -> None:
    public = getattr(module, "__all__", None) or [name for name in vars(module) if name[0].isupper()]
    for name in public:
        value = getattr(module, name)
        if not inspect.isclass(value):
            continue
        assert value.__doc__, name
        for member, function in inspect.getmembers(value, inspect.isroutine):
            if not member.startswith("_") and str(getattr(function, "__module__", "")).startswith(
                "dormouse."
            ):
                assert function.__doc__, f"{name}.{member}"


def test_each_code_of_the_api_has_an_error_class() -> None:
    page = (REPOSITORY / "docs" / "reference" / "errors.md").read_text()
    assert set(dormouse.errors.ERRORS_BY_CODE) == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def test_operations_are_constants_with_unique_ids() -> None:
    operations = [value for value in vars(_operations).values() if isinstance(value, Operation)]
    assert len({operation.id for operation in operations}) == len(operations)


def test_all_exported_names_exist() -> None:
    assert [name for name in dormouse.__all__ if not hasattr(dormouse, name)] == []


def test_no_file_is_long() -> None:
    files = [path for folder in ("_async", "_sync", ".") for path in (PACKAGE / folder).glob("*.py")]
    lengths = {path: len(path.read_text().splitlines()) for path in files}
    generated = PACKAGE / "types.py"
    assert [path for path, length in lengths.items() if length > 800 and path != generated] == []
