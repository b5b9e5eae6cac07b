"""MCP gateway. The program `mcp-gateway` is E2B's own, so a small one of ours stands in for it."""

from e2b import Sandbox, SandboxException, Template

from pages import example, main

SERVERS = {"github/example/server": {"run_cmd": "npx -y server", "install_cmd": "npm install"}}
GATEWAY = (
    '#!/bin/bash\nmkdir -p /etc/mcp-gateway\necho -n "$GATEWAY_ACCESS_TOKEN" > /etc/mcp-gateway/.token\n'
    'echo "$2" > /etc/mcp-gateway/config\n'
)


@example("Start the gateway with servers")
def quickstart() -> None:
    source = Sandbox.create()
    source.files.write("/usr/local/bin/mcp-gateway", GATEWAY, user="root")
    source.commands.run("chmod +x /usr/local/bin/mcp-gateway", user="root")
    snapshot = source.create_snapshot(name="page-mcp-gateway")
    source.kill()
    sandbox = Sandbox.create("page-mcp-gateway", mcp=SERVERS)
    assert sandbox.get_mcp_url() == f"https://{sandbox.get_host(50005)}/mcp"
    assert sandbox.get_mcp_token() == sandbox.files.read("/etc/mcp-gateway/.token", user="root")
    assert "github/example/server" in sandbox.files.read("/etc/mcp-gateway/config", user="root")
    sandbox.kill()
    Sandbox.delete_snapshot(snapshot.snapshot_id)


@example("A template without the gateway")
def without() -> None:
    try:
        Sandbox.create("base", mcp=SERVERS)
        raise AssertionError("it was created")
    except SandboxException as error:
        assert "Failed to start MCP gateway" in str(error)


@example("Custom templates: add servers")
def add_servers() -> None:
    template = Template().from_template("mcp-gateway").add_mcp_server(["browserbase", "exa"])
    assert "mcp-gateway pull browserbase exa" in Template.to_json(template)


if __name__ == "__main__":
    main()
