"""Lists the public methods and options of the clients by introspection.

A method is named `package.Class.method`, and a parameter of it `package.Class.method(parameter)`. A method
that can be called on the class, too, is there once more, as `package.Class.method[class]`. Keys of a typed
dictionary and fields of a dataclass that is passed as a parameter are named after their type, such as
`SandboxNetworkOpts.allow_out`, because many methods share them.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import importlib.util
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

PACKAGES = ["e2b", "e2b_code_interpreter"]

GENERATED = ("e2b.api.client", "e2b.volume.client.", "e2b.envd", "httpx", "httpcore")
"""Modules of the generated HTTP client, which the packages export without documenting it."""

LEAVES = {"McpServer", "McpServerInput", "GitHubMcpServerConfig"}
"""Dictionaries that the client passes on to a program in the sandbox without looking into them."""

NOT_CALLED = {"ApiClient", "TemplateBase"}
"""Exported classes that users do not call: they call classes that are derived from them."""


@dataclass(frozen=True)
class Member:
    """A public method, property or function."""

    name: str
    holder: Any
    """The class or module that has it in its dictionary."""
    owner: Any
    """The class that it is listed under: the holder or one derived from it."""
    attribute: str
    function: Callable[..., Any]
    is_property: bool = False

    def parameters(self) -> dict[str, tuple[str, Any]]:
        """Return for each option its name in the list and its annotation, by parameter."""
        if self.is_property:
            return {}
        hints = annotations(self.function)
        found: dict[str, tuple[str, Any]] = {}
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.name in ("self", "cls", "args", "kwargs"):
                continue
            hint = hints.get(parameter.name, Any)
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                (unpacked,) = typing.get_args(hint) or (None,)
                if unpacked is None or not typing.is_typeddict(unpacked):
                    continue
                for key, of in annotations(unpacked).items():
                    found[key] = (f"{unpacked.__name__}.{key}", of)
            elif not parameter.name.startswith("_"):
                found[parameter.name] = (f"{self.name}({parameter.name})", hint)
        return found

    def options(self) -> Iterator[str]:
        """Yield the names of all options, also of those in dictionaries."""
        for name, hint in self.parameters().values():
            yield name
            for structure in structures(hint):
                yield from keys(structure, set())


def annotations(owner: Any) -> dict[str, Any]:
    """Return the types of parameters or keys, without markers such as `NotRequired`."""
    try:
        hints = typing.get_type_hints(owner, include_extras=False)
    except (NameError, TypeError, AttributeError):
        return dict(getattr(owner, "__annotations__", {}))
    return {name: bare(hint) for name, hint in hints.items() if name != "return"}


def bare(hint: Any) -> Any:
    """Return a type without markers, which an older `typing_extensions` leaves."""
    origin = getattr(typing.get_origin(hint), "_name", None) or getattr(typing.get_origin(hint), "__name__", "")
    return bare(typing.get_args(hint)[0]) if origin in ("NotRequired", "Required", "ReadOnly") else hint


def structures(hint: Any) -> list[Any]:
    """Return the dictionaries and dataclasses of the packages that a value of a type can contain."""
    if is_structure(hint):
        return [hint]
    if isinstance(typing.get_origin(hint), type) and issubclass(typing.get_origin(hint), Callable):  # type: ignore[arg-type]
        return []
    return [found for argument in typing.get_args(hint) for found in structures(argument)]


def is_structure(hint: Any) -> bool:
    if not isinstance(hint, type) or hint.__name__ in LEAVES or not hint.__module__.startswith("e2b"):
        return False
    return typing.is_typeddict(hint) or dataclasses.is_dataclass(hint)


def keys(structure: Any, seen: set[Any]) -> Iterator[str]:
    """Yield the names of the keys of a structure and of those in it."""
    if structure in seen:
        return
    seen.add(structure)
    for key, hint in annotations(structure).items():
        if not key.startswith("_"):
            yield f"{structure.__name__}.{key}"
            for inner in structures(hint):
                yield from keys(inner, seen)


def used(value: Any, hint: Any) -> Iterator[str]:
    """Yield the names of the keys that a value of a type has."""
    found = structures(hint)
    if not found:
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if getattr(value, field.name) is not None:
                yield f"{type(value).__name__}.{field.name}"
    elif isinstance(value, dict):
        for structure in found:
            for key, of in annotations(structure).items():
                if key in value:
                    yield f"{structure.__name__}.{key}"
                    yield from used(value[key], of)
        if not any(key in annotations(structure) for structure in found for key in value):
            for inner in value.values():
                yield from used(inner, hint)
    elif isinstance(value, list):
        for inner in value:
            yield from used(inner, hint)


def members() -> list[Member]:
    """Return all public methods, properties and functions of the packages that are installed."""
    found: dict[str, Member] = {}
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            continue
        module = importlib.import_module(package)
        classes: list[type] = []
        for name in getattr(module, "__all__", None) or [name for name in vars(module) if name[0] != "_"]:
            exported = getattr(module, name)
            if inspect.isclass(exported):
                classes.append(exported)
            elif inspect.isfunction(exported) and exported.__module__.startswith(f"{package}."):
                label = f"{package}.{name}"
                found[label] = Member(label, module, module, name, exported)
        for owner in reachable(classes, package):
            for member in members_of(owner, package):
                found.setdefault(member.name, member)
    return sorted(found.values(), key=lambda member: member.name)


def reachable(classes: list[type], package: str) -> list[type]:
    """Return these classes of a package and all that their methods and properties return."""
    found: list[type] = []
    queue = list(classes)
    while queue:
        owner = queue.pop()
        if owner in found or not is_called(owner) or not owner.__module__.startswith(f"{package}."):
            continue
        found.append(owner)
        for value in (value for base in owner.__mro__ for value in vars(base).values()):
            function = value.fget if isinstance(value, property) else implementation(value)
            if function is not None:
                queue.extend(results(function))
    return found


def results(function: Callable[..., Any]) -> list[type]:
    """Return the classes in the type of a function's result."""
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return []
    queue, found = [hint], []
    while queue:
        part = queue.pop()
        arguments = typing.get_args(part)
        queue.extend(arguments)
        origin = typing.get_origin(part) or part
        if inspect.isclass(origin):
            found.append(origin)
    return found


def is_called(owner: type) -> bool:
    """Tell whether a class has methods for users, and is not an error, an option or a plain value."""
    return not (
        issubclass(owner, (BaseException, enum.Enum))
        or typing.is_typeddict(owner)
        or owner.__module__.startswith(GENERATED)
        or owner.__name__ in NOT_CALLED
    )


def members_of(owner: type, package: str) -> Iterator[Member]:
    """Yield what a class offers, also what it inherits from classes that are not exported."""
    for name in dir(owner):
        if name.startswith("_"):
            continue
        holder = next(base for base in owner.__mro__ if name in vars(base))
        if not holder.__module__.startswith(f"{package}."):
            continue
        value = vars(holder)[name]
        label = f"{package}.{title(owner)}.{name}"
        if isinstance(value, property) and value.fget is not None:
            yield Member(label, holder, owner, name, value.fget, is_property=True)
            continue
        function, on_class = implementation(value), class_form(owner, value)
        if function is not None:
            yield Member(label, holder, owner, name, function)
        if on_class is not None:
            yield Member(f"{label}[class]", holder, owner, name, on_class)


def title(owner: type) -> str:
    """Return the name of a class; those of modules of an asynchronous sandbox are as in the blocking one."""
    is_same = "_async" in owner.__module__ and not owner.__name__.startswith("Async")
    return f"Async{owner.__name__}" if is_same else owner.__name__


def implementation(value: Any) -> Callable[..., Any] | None:
    """Return the function behind an attribute of a class."""
    if isinstance(value, (classmethod, staticmethod)):
        return typing.cast("Callable[..., Any]", value.__func__)
    if isinstance(value, types.FunctionType):
        return value
    return getattr(value, "method", None) or getattr(value, "_instance_fn", None)


def class_form(owner: type, value: Any) -> Callable[..., Any] | None:
    """Return the function behind the form of a method that is called on the class."""
    attribute = getattr(value, "class_method_name", None)
    if attribute is not None:
        return typing.cast("Callable[..., Any]", getattr(owner, attribute).__func__)
    static = getattr(value, "_static_fn", None)
    return None if static is None else typing.cast("Callable[..., Any]", static.__func__)
