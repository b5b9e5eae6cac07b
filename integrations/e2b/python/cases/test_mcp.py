"""The gateway for MCP: the option is passed on, and a template without the gateway fails as documented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from e2b import FileNotFoundException, SandboxException

from support.guest import all_items
from support.surface import Surface

Create = Callable[..., Any]

SERVERS = {"github/example/server": {"run_cmd": "run", "install_cmd": "install", "envs": {"A": "b"}}}


def test_a_template_without_the_gateway_is_reported_and_its_sandbox_killed(api: Surface, unique: str) -> None:
    with pytest.raises(SandboxException, match="Failed to start MCP gateway: .*command not found"):
        api.Sandbox.create("base", mcp=SERVERS, metadata={"case": unique})
    from e2b import SandboxQuery

    assert all_items(api.Sandbox.list(query=SandboxQuery(metadata={"case": unique}))) == []


def test_the_template_of_the_gateway_must_exist(api: Surface) -> None:
    with pytest.raises(SandboxException, match="404: template 'mcp-gateway' not found"):
        api.Sandbox.create(mcp=SERVERS)


def test_the_url_of_the_gateway_is_that_of_its_port(sandbox: Any) -> None:
    assert sandbox.get_mcp_url() == f"https://{sandbox.get_host(50005)}/mcp"


def test_a_sandbox_without_the_gateway_has_no_token(sandbox: Any) -> None:
    with pytest.raises(FileNotFoundException):
        sandbox.get_mcp_token()


def test_a_program_that_acts_as_the_gateway_is_started_with_the_servers(api: Surface, create: Create) -> None:
    source = create()
    script = (
        '#!/bin/bash\nmkdir -p /etc/mcp-gateway\necho -n "$GATEWAY_ACCESS_TOKEN" > /etc/mcp-gateway/.token\n'
        'echo "$@" > /etc/mcp-gateway/arguments\n'
    )
    source.files.write("/usr/local/bin/mcp-gateway", script, user="root")
    source.commands.run("chmod 755 /usr/local/bin/mcp-gateway", user="root")
    snapshot = source.create_snapshot().snapshot_id
    try:
        sandbox = create(snapshot, mcp=SERVERS)
        token = sandbox.get_mcp_token()
        assert token == sandbox.files.read("/etc/mcp-gateway/.token", user="root")
        assert "github/example/server" in sandbox.files.read("/etc/mcp-gateway/arguments", user="root")
        assert api.Sandbox.connect(sandbox.sandbox_id).get_mcp_token() == token
    finally:
        api.Sandbox.delete_snapshot(snapshot)
