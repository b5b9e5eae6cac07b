"""Records which methods and options the cases use, by wrapping the packages.

Only calls of the cases count: what a method of a package calls in turn is not recorded. A method or option
that was only ever used in calls that failed is recorded with the errors, so that a list of refused options
can be compared with what really happens.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from .options import Member, members, used

inside: ContextVar[bool] = ContextVar("inside", default=False)
"""Whether the current call was made by the package itself."""

ERRORS_MAX = 20


class Record:
    """The uses of each name: the number of calls that succeeded, and the errors of the others."""

    def __init__(self) -> None:
        self.uses: dict[str, dict[str, Any]] = {}

    def add(self, names: list[str], error: BaseException | None) -> None:
        for name in names:
            use = self.uses.setdefault(name, {"ok": 0, "errors": []})
            if error is None:
                use["ok"] += 1
            else:
                text = f"{type(error).__name__}: {error}"
                if text not in use["errors"] and len(use["errors"]) < ERRORS_MAX:
                    use["errors"].append(text)

    def write(self, directory: Path, worker: str) -> None:
        """Write the record of one process of the test runner."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{os.environ.get('E2B_SUITE', 'suite')}-{worker}.json"
        path.write_text(json.dumps(self.uses, indent=1, sort_keys=True))


@contextmanager
def outermost() -> Iterator[bool]:
    """Mark that the package runs; yields whether it was called from outside."""
    outer = not inside.get()
    token = inside.set(True)
    try:
        yield outer
    finally:
        inside.reset(token)


def install(record: Record) -> None:
    """Wrap all public methods, properties and functions of the packages."""
    shared: dict[tuple[Any, str], list[Member]] = {}
    for member in members():
        shared.setdefault((member.holder, member.attribute), []).append(member)
    for (holder, attribute), of in shared.items():
        wrap(holder, attribute, of, record)


def wrap(holder: Any, attribute: str, of: list[Member], record: Record) -> None:
    value = vars(holder)[attribute]
    on_class = [member for member in of if member.name.endswith("[class]")]
    of = [member for member in of if member not in on_class]
    if isinstance(value, property):
        setattr(holder, attribute, property(recorded(value.fget, of, record), value.fset, value.fdel))
    elif isinstance(value, (classmethod, staticmethod)):
        setattr(holder, attribute, type(value)(recorded(value.__func__, of, record)))
    elif hasattr(value, "class_method_name"):
        value.method = recorded(value.method, of, record)
        # Several methods can share the form that is called on the class: each gets one of its own.
        value.class_method_name = f"_recorded_{attribute}"
        setattr(holder, value.class_method_name, classmethod(recorded(on_class[0].function, on_class, record)))
    elif hasattr(value, "_instance_fn"):
        value._instance_fn = recorded(value._instance_fn, of, record)
        value._static_fn = classmethod(recorded(on_class[0].function, on_class, record))
    else:
        setattr(holder, attribute, recorded(value, of, record))


def recorded(function: Callable[..., Any], of: list[Member], record: Record) -> Callable[..., Any]:
    """Return a function that records its calls."""
    signature = inspect.signature(function)
    parameters = {member.name: member.parameters() for member in of}

    def names(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        found: list[str] = []
        for member in chosen(of, args):
            found.append(member.name)
            try:
                given = dict(signature.bind(*args, **kwargs).arguments)
            except TypeError:
                return found
            given |= given.pop("opts", {})
            for parameter, (name, hint) in parameters[member.name].items():
                if given.get(parameter) is not None:
                    found.append(name)
                    found.extend(used(given[parameter], hint))
        return found

    def called(*args: Any, **kwargs: Any) -> Any:
        with outermost() as outer:
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                if outer:
                    record.add(names(args, kwargs), error)
                raise
            if outer:
                record.add(names(args, kwargs), None)
            return result

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        with outermost() as outer:
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                if outer:
                    record.add(names(args, kwargs), error)
                raise
            if outer:
                record.add(names(args, kwargs), None)
            return result

    return functools.wraps(function)(awaited if inspect.iscoroutinefunction(function) else called)


def chosen(of: list[Member], args: tuple[Any, ...]) -> list[Member]:
    """Return the members that a call is one of: classes can share the function of their base."""
    if len(of) == 1 or not args:
        return of
    receiver = args[0] if isinstance(args[0], type) else type(args[0])
    return [member for member in of if member.owner in receiver.__mro__][:1] or of
