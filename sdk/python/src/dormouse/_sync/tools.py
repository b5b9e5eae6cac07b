# Generated from _async/tools.py by scripts/generate_sync.py; do not edit.
"""Runs calls of tools in a sandbox."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from .._tools import TOOLS, ToolError, edited, numbered, shortened
from ..errors import DormouseError
from .sandbox import Sandbox


class Toolbox:
    """The tools of a model that works in one sandbox."""

    sandbox: Sandbox
    """The sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def anthropic(self) -> list[dict[str, Any]]:
        """Return the definitions for `tools` of the Messages API of Anthropic."""
        return [tool.anthropic() for tool in TOOLS]

    def openai(self) -> list[dict[str, Any]]:
        """Return the definitions for `tools` of the Chat Completions API of OpenAI."""
        return [tool.openai() for tool in TOOLS]

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool and return its result as text.

        Raises:
            ToolError: The call is not valid.
            DormouseError: The sandbox could not do it.
        """
        tools: dict[str, Callable[..., str]] = {
            "exec": self._exec,
            "read": self._read,
            "write": self._write,
            "edit": self._edit,
            "checkpoint": self._checkpoint,
            "rewind": self._rewind,
        }
        if name not in tools:
            raise ToolError(f"there is no tool {name!r}")
        try:
            bound = inspect.signature(tools[name]).bind(**arguments)
        except TypeError as error:
            raise ToolError(f"invalid arguments of {name}: {error}") from error
        return tools[name](*bound.args, **bound.kwargs)

    def run_anthropic(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Run a `tool_use` block, and return the `tool_result` block for it.

        Errors are results, too: the model can react to them.
        """
        text, is_error = self._answer(block["name"], block["input"])
        return {
            "type": "tool_result",
            "tool_use_id": block["id"],
            "content": text,
            "is_error": is_error,
        }

    def run_openai(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Run an entry of `tool_calls`, and return the message for it.

        Errors are results, too: the model can react to them.
        """
        function = call["function"]
        try:
            arguments = json.loads(function["arguments"] or "{}")
        except ValueError as error:
            text = f"Error: the arguments are not JSON: {error}"
        else:
            text, _ = self._answer(function["name"], arguments)
        return {"role": "tool", "tool_call_id": call["id"], "content": text}

    def _answer(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        try:
            return self.run(name, arguments), False
        except (ToolError, DormouseError) as error:
            return f"Error: {error}", True

    def _exec(self, command: str, cwd: str | None = None, timeout: float | None = None) -> str:
        result = self.sandbox.exec(command, cwd=cwd, timeout=timeout)
        parts = [result.stdout, result.stderr, "" if result.ok else f"[the command {result.outcome}]"]
        return shortened("\n".join(part.rstrip("\n") for part in parts if part)) or "[no output]"

    def _read(self, path: str, first: int = 1, lines: int | None = None) -> str:
        text = self.sandbox.files.read_text(path, errors="replace")
        return shortened(numbered(text, first, lines)) or "[the file is empty]"

    def _write(self, path: str, content: str) -> str:
        written = self.sandbox.files.write(path, content)
        return f"Wrote {written.size_bytes} bytes to {path}."

    def _edit(self, path: str, old: str, new: str) -> str:
        text = self.sandbox.files.read_text(path)
        self.sandbox.files.write(path, edited(text, old, new))
        return f"Edited {path}."

    def _checkpoint(self) -> str:
        return (self.sandbox.checkpoint()).id

    def _rewind(self, checkpoint: str) -> str:
        self.sandbox.rewind(checkpoint)
        return f"The sandbox is as it was at {checkpoint}."
