"""Definitions of the tools that let a model work in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OUTPUT_CHARS_MAX = 30_000
"""The longest text that a tool returns. The middle of a longer one is left out."""


@dataclass(frozen=True)
class Tool:
    """A tool that a model can call."""

    name: str
    """The name of the tool."""
    description: str
    """The purpose of the tool, for the model."""
    parameters: Mapping[str, Any]
    """The JSON schema of its arguments."""

    def anthropic(self) -> dict[str, Any]:
        """Return the definition for the Messages API of Anthropic."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.parameters)}

    def openai(self) -> dict[str, Any]:
        """Return the definition for the Chat Completions API of OpenAI."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def _tool(name: str, description: str, required: dict[str, str], **optional: dict[str, Any]) -> Tool:
    properties = {key: {"type": "string", "description": text} for key, text in required.items()}
    parameters = {
        "type": "object",
        "properties": {**properties, **optional},
        "required": list(required),
        "additionalProperties": False,
    }
    return Tool(name, description, parameters)


TOOLS = (
    _tool(
        "exec",
        "Run a command in the sandbox. Returns its output and exit code.",
        {"command": "A line for /bin/sh."},
        cwd={"type": "string", "description": "Working directory."},
        timeout={"type": "number", "description": "Seconds after which the command is killed."},
    ),
    _tool(
        "read",
        "Read a text file in the sandbox. Lines are numbered.",
        {"path": "Absolute path of the file."},
        first={"type": "integer", "description": "First line to return, from 1 on. Default: 1."},
        lines={"type": "integer", "description": "Number of lines to return. Default: all."},
    ),
    _tool(
        "write",
        "Write a text file in the sandbox. Replaces the file if it exists.",
        {"path": "Absolute path of the file.", "content": "The whole contents."},
    ),
    _tool(
        "edit",
        "Replace a text in a file in the sandbox. The text must occur exactly once.",
        {"path": "Absolute path of the file.", "old": "The text to replace.", "new": "The new text."},
    ),
    _tool(
        "checkpoint",
        "Save the state of the sandbox. Returns an id to rewind to.",
        {},
    ),
    _tool(
        "rewind",
        "Bring the sandbox back to a saved state. Everything after it is undone.",
        {"checkpoint": "The id that the tool checkpoint returned."},
    ),
)
"""The tools: exec, read, write, edit, checkpoint and rewind."""


def shortened(text: str) -> str:
    """Leave out the middle of a text that is too long for a model."""
    if len(text) <= OUTPUT_CHARS_MAX:
        return text
    half = OUTPUT_CHARS_MAX // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def numbered(text: str, first: int, lines: int | None) -> str:
    """Return lines of a text with their numbers."""
    begin = max(first, 1) - 1
    chosen = text.splitlines()[begin : None if lines is None else begin + lines]
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(chosen, begin + 1))


def edited(text: str, old: str, new: str) -> str:
    """Replace the only occurrence of a text in another."""
    count = text.count(old) if old else 0
    if count != 1:
        raise ToolError(f"the text to replace occurs {count} times; it must occur exactly once")
    return text.replace(old, new)


class ToolError(Exception):
    """A tool cannot do what the model asks for. The model gets the message."""
