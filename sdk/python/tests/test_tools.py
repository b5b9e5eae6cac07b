"""Tools for models, driven by scripted calls instead of a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from blocking import Blocking, Loop

from dormouse import AsyncClient, Client, Sandbox
from dormouse.errors import ApiError
from dormouse.langchain import sandbox_tools
from dormouse.tools import TOOLS, AsyncToolbox, Toolbox, ToolError

NAMES = ["exec", "read", "write", "edit", "checkpoint", "rewind"]


def toolbox_of(sandbox: Sandbox, loop: Loop) -> Toolbox:
    if isinstance(sandbox, Sandbox):
        return Toolbox(sandbox)
    return cast("Toolbox", Blocking(loop, AsyncToolbox(cast("Blocking", sandbox).target)))


@pytest.fixture
def toolbox(sandbox: Sandbox, loop: Loop) -> Toolbox:
    return toolbox_of(sandbox, loop)


@pytest.fixture
def path(directory: str) -> str:
    return f"{directory}/a.txt"


def test_definitions_have_the_forms_of_both_vendors() -> None:
    assert [tool.name for tool in TOOLS] == NAMES
    for tool in TOOLS:
        assert tool.anthropic().keys() == {"name", "description", "input_schema"}
        assert tool.openai()["type"] == "function"
        assert tool.openai()["function"].keys() == {"name", "description", "parameters"}
        assert set(tool.parameters["required"]) <= set(tool.parameters["properties"])
    json.dumps([tool.openai() for tool in TOOLS])


def test_a_toolbox_lists_its_tools(toolbox: Toolbox) -> None:
    assert [tool["name"] for tool in toolbox.anthropic()] == NAMES
    assert [tool["function"]["name"] for tool in toolbox.openai()] == NAMES


def test_exec_returns_output_and_a_failure(toolbox: Toolbox) -> None:
    assert toolbox.run("exec", {"command": "echo out; echo err >&2"}) == "out\nerr"
    assert (
        toolbox.run("exec", {"command": "pwd; exit 2", "cwd": "/tmp"})
        == "/tmp\n[the command exited with code 2]"
    )
    assert toolbox.run("exec", {"command": "true"}) == "[no output]"
    assert "time limit" in toolbox.run("exec", {"command": "sleep 60", "timeout": 0.1})


def test_long_output_is_shortened_in_the_middle(toolbox: Toolbox) -> None:
    text = toolbox.run("exec", {"command": "seq 1 100000"})
    assert text.startswith("1\n2\n")
    assert text.endswith("99999\n100000")
    assert "characters left out" in text
    assert len(text) < 31_000


def test_files_are_written_read_and_edited(toolbox: Toolbox, path: str) -> None:
    assert (
        toolbox.run("write", {"path": path, "content": "one\ntwo\nthree\n"}) == f"Wrote 14 bytes to {path}."
    )
    assert toolbox.run("read", {"path": path, "first": 2, "lines": 1}) == "     2\ttwo"
    toolbox.run("edit", {"path": path, "old": "two", "new": "2"})
    assert toolbox.run("read", {"path": path}).splitlines()[1] == "     2\t2"


@pytest.mark.parametrize(("old", "count"), [("none", 0), ("a", 2), ("", 0)])
def test_an_edit_must_be_unambiguous(toolbox: Toolbox, path: str, old: str, count: int) -> None:
    toolbox.run("write", {"path": path, "content": "a a"})
    with pytest.raises(ToolError, match=f"occurs {count} times"):
        toolbox.run("edit", {"path": path, "old": old, "new": "b"})


def test_a_rewind_undoes_what_was_done(client: Client, named: Sandbox, loop: Loop) -> None:
    toolbox = toolbox_of(named, loop)
    checkpoint = toolbox.run("checkpoint", {})
    toolbox.run("exec", {"command": "rm -rf /usr/share"})
    assert checkpoint in toolbox.run("rewind", {"checkpoint": checkpoint})
    assert named.files.exists("/usr/share")
    named.terminate()
    for snapshot in client.snapshots.list(source=named.id):
        client.snapshots.delete(snapshot.id, when_free=True)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("fly", {}), ("exec", {}), ("exec", {"command": "true", "speed": 9})],
    ids=["unknown-tool", "missing-argument", "unknown-argument"],
)
def test_an_invalid_call_is_an_error(toolbox: Toolbox, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError):
        toolbox.run(name, arguments)


def test_errors_of_the_sandbox_are_raised(toolbox: Toolbox) -> None:
    with pytest.raises(ApiError):
        toolbox.run("read", {"path": "/none"})


def test_anthropic_blocks_are_answered(toolbox: Toolbox) -> None:
    block = {"type": "tool_use", "id": "t1", "name": "exec", "input": {"command": "echo hi"}}
    assert toolbox.run_anthropic(block) == {
        "type": "tool_result", "tool_use_id": "t1", "content": "hi", "is_error": False
    }  # fmt: skip
    failed = toolbox.run_anthropic({**block, "name": "read", "input": {"path": "/none"}})
    assert (failed["is_error"], failed["content"][:12]) == (True, "Error: there")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"command": "echo hi"}', "hi"),
        ("{broken", "Error: the arguments are not JSON"),
        ("", "Error: invalid"),
    ],
)
def test_openai_calls_are_answered(toolbox: Toolbox, arguments: str, expected: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": arguments}}
    message = toolbox.run_openai(call)
    assert (message["role"], message["tool_call_id"]) == ("tool", "c1")
    assert message["content"].startswith(expected)


@pytest.fixture
def langchain(daemon: str) -> Iterator[dict[str, Any]]:
    with Client() as client, client.sandboxes.create("base") as sandbox:
        yield {tool.name: tool for tool in sandbox_tools(Toolbox(sandbox))}


def test_langchain_tools_are_invoked(langchain: dict[str, Any]) -> None:
    assert list(langchain) == NAMES
    assert langchain["exec"].invoke({"command": "echo hi"}) == "hi"
    call = {"type": "tool_call", "id": "1", "name": "write", "args": {"path": "/root/a", "content": "x"}}
    message = langchain["write"].invoke(call)
    assert (message.tool_call_id, message.content) == ("1", "Wrote 1 bytes to /root/a.")
    assert langchain["read"].invoke({"path": "/none"}).startswith("Error: ")


def test_langchain_tools_are_invoked_asynchronously(daemon: str) -> None:
    async def run() -> str:
        async with AsyncClient() as client, client.sandboxes.create("base") as sandbox:
            tools = {tool.name: tool for tool in sandbox_tools(AsyncToolbox(sandbox))}
            return str(await tools["exec"].ainvoke({"command": "echo hi"}))

    assert asyncio.run(run()) == "hi"
