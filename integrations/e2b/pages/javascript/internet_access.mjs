// Sandbox: internet access, public URLs, secured access.
import assert from "node:assert/strict";
import { ALL_TRAFFIC, Sandbox } from "e2b";
import { example, main, until, visit } from "./pages.mjs";

const INTERNET = process.env.E2B_CASES_INTERNET;

async function reaches(sandbox) {
  const command = `timeout 5 bash -c 'exec 3<>/dev/tcp/${INTERNET}/8000' 2> /dev/null && echo yes || echo no`;
  return (await sandbox.commands.run(command)).stdout === "yes\n";
}

example("Allow or disable the internet", async () => {
  for (const allowInternetAccess of [true, false]) {
    const sandbox = await Sandbox.create({ allowInternetAccess });
    assert.equal(await reaches(sandbox), allowInternetAccess);
    await sandbox.kill();
  }
});

example("Allow and deny addresses", async () => {
  const sandbox = await Sandbox.create({ network: { denyOut: [ALL_TRAFFIC], allowOut: [INTERNET, "8.8.8.0/24"] } });
  const restricted = await Sandbox.create({ network: { denyOut: [INTERNET] } });
  assert.deepEqual([await reaches(sandbox), await reaches(restricted)], [true, false]);
  await sandbox.kill();
  await restricted.kill();
});

example("Allow names", async () => {
  const network = { allowOut: ["api.example.com", "*.github.com"], denyOut: [ALL_TRAFFIC] };
  const sandbox = await Sandbox.create({ network });
  assert.deepEqual((await sandbox.getInfo()).network.allowOut, network.allowOut);
  assert.equal(await reaches(sandbox), false);
  await sandbox.kill();
});

example("Allow takes precedence", async () => {
  const sandbox = await Sandbox.create({ network: { denyOut: [ALL_TRAFFIC, INTERNET], allowOut: [INTERNET] } });
  assert(await reaches(sandbox));
  await sandbox.kill();
});

example("Change the network of a running sandbox", async () => {
  const sandbox = await Sandbox.create();
  await sandbox.updateNetwork({ denyOut: [ALL_TRAFFIC] });
  assert.equal(await reaches(sandbox), false);
  await sandbox.updateNetwork({ allowInternetAccess: true });
  assert(await reaches(sandbox));
  await sandbox.kill();
});

example("The public URL of a port", async () => {
  const sandbox = await Sandbox.create();
  assert(sandbox.getHost(3000).startsWith(`3000-${sandbox.sandboxId}.`));
  await sandbox.kill();
});

example("Connect to a server in the sandbox", async () => {
  const sandbox = await Sandbox.create();
  const process = await sandbox.commands.run("python3 -m http.server 3000", { background: true, timeoutMs: 0 });
  process.wait().catch(() => {});
  await until(async () => (await visit(sandbox.getHost(3000))).text.includes("Directory listing for /"));
  await process.kill();
  await sandbox.kill();
});

example("Restrict the public URL", async () => {
  const sandbox = await Sandbox.create({ network: { allowPublicTraffic: false } });
  await sandbox.commands.run("python3 -m http.server 8080", { background: true, timeoutMs: 0 });
  const token = { "e2b-traffic-access-token": sandbox.trafficAccessToken };
  await until(async () => (await visit(sandbox.getHost(8080), token)).status === 200);
  assert.equal((await visit(sandbox.getHost(8080))).status, 403);
  await sandbox.kill();
});

example("Mask the host of requests", async () => {
  const sandbox = await Sandbox.create({ network: { maskRequestHost: "localhost:${PORT}" } });
  const script = `
import http.server
class A(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(self.headers["Host"].encode())
http.server.HTTPServer(("", 8080), A).serve_forever()
`;
  await sandbox.files.write("server.py", script);
  await sandbox.commands.run("python3 server.py", { background: true, timeoutMs: 0 });
  await until(async () => (await visit(sandbox.getHost(8080))).text === "localhost:8080");
  await sandbox.kill();
});

example("Secured access: signed URLs of files", async () => {
  const sandbox = await Sandbox.create({ secure: true });
  const form = new FormData();
  form.append("file", new Blob(["hello"]));
  const upload = await sandbox.uploadUrl("demo.txt", { useSignatureExpiration: 10_000 });
  assert.equal((await fetch(upload, { method: "POST", body: form })).status, 200);
  const download = await sandbox.downloadUrl("demo.txt", { user: "user", useSignatureExpiration: 1 });
  assert.equal(await (await fetch(download)).text(), "hello");
  await new Promise((resolve) => setTimeout(resolve, 2000));
  assert.equal(await (await fetch(download)).text(), '{"code":401,"message":"signature is already expired"}');
  await sandbox.kill();
});

await main();
