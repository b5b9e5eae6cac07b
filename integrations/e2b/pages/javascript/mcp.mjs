// MCP gateway. The program `mcp-gateway` is E2B's own, so a small one of ours stands in for it.
import assert from "node:assert/strict";
import { Sandbox, Template } from "e2b";
import { example, main } from "./pages.mjs";

const mcp = { "github/example/server": { runCmd: "npx -y server", installCmd: "npm install" } };
const GATEWAY = `#!/bin/bash
mkdir -p /etc/mcp-gateway
echo -n "$GATEWAY_ACCESS_TOKEN" > /etc/mcp-gateway/.token
echo "$2" > /etc/mcp-gateway/config
`;

example("Start the gateway with servers", async () => {
  const source = await Sandbox.create();
  await source.files.write("/usr/local/bin/mcp-gateway", GATEWAY, { user: "root" });
  await source.commands.run("chmod +x /usr/local/bin/mcp-gateway", { user: "root" });
  const { snapshotId } = await source.createSnapshot({ name: "js-page-mcp-gateway" });
  await source.kill();
  const sandbox = await Sandbox.create("js-page-mcp-gateway", { mcp });
  assert.equal(sandbox.getMcpUrl(), `https://${sandbox.getHost(50005)}/mcp`);
  assert.equal(await sandbox.getMcpToken(), await sandbox.files.read("/etc/mcp-gateway/.token", { user: "root" }));
  assert((await sandbox.files.read("/etc/mcp-gateway/config", { user: "root" })).includes("github/example/server"));
  await sandbox.kill();
  await Sandbox.deleteSnapshot(snapshotId);
});

example("A template without the gateway", async () => {
  await assert.rejects(Sandbox.create("base", { mcp }), /Failed to start MCP gateway/);
});

example("Custom templates: add servers", async () => {
  const template = Template().fromTemplate("mcp-gateway").addMcpServer(["browserbase", "exa"]);
  assert((await Template.toJSON(template)).includes("mcp-gateway pull browserbase exa"));
});

await main();
