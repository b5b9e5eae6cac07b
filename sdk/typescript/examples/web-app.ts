/**
 * A web application that sleeps when nobody uses it. A request to its port wakes it, and it answers with what it had
 * in memory.
 */

import { Dormouse, type Sandbox } from "@dormouse/sdk";

const APP = `
import http.server
visits = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global visits
        visits += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"hello, visitor {visits}".encode())
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
`;

const dormouse = new Dormouse();
await using sandbox = await dormouse.sandboxes.create({
  image: "base",
  name: `app-${crypto.randomUUID().slice(0, 8)}`,
  // Without a request for ten minutes it is suspended.
  idleTimeoutMs: 600_000,
});
await sandbox.services.start("app", ["python3", "-c", APP], { restart: "always" });
await listens(sandbox);

/** Waits until the application listens. */
async function listens(sandbox: Sandbox): Promise<void> {
  const probe = "until curl --silent --output /dev/null --head http://127.0.0.1:8000; do sleep 0.05; done";
  await sandbox.exec(probe, { timeoutMs: 30_000, check: true });
}

async function visit(): Promise<void> {
  console.log(`GET / → ${await (await sandbox.ports.fetch(8000, "/")).text()}`);
}

async function state(): Promise<void> {
  await sandbox.refresh();
  console.log(`the sandbox is ${sandbox.state}, in generation ${sandbox.info.generation}`);
}

await visit();
await visit();
await sandbox.suspend();
await state();
await visit();
await state();
