/** A web app that is paused when nobody uses it, and wakes on a request with what it had in memory. */
import { setTimeout as sleep } from "node:timers/promises";
import { Sandbox } from "e2b";

const APP = `
import http.server
visits = 0
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global visits
        visits += 1
        self.send_response(200); self.end_headers(); self.wfile.write(f"visit number {visits}".encode())
    def log_message(self, *rest): pass
http.server.HTTPServer(("", 8000), App).serve_forever()
`;

/** Sends a request to port 8000. Two headers name the port, so no name has to be resolved. */
async function visit(sandbox: Sandbox): Promise<string> {
  const headers = { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": "8000" };
  const answer = await fetch(process.env["E2B_SANDBOX_URL"]!, { headers });
  return answer.ok ? answer.text() : "";
}

const sandbox = await Sandbox.create({ timeoutMs: 300_000, lifecycle: { onTimeout: "pause", autoResume: true } });
try {
  await sandbox.files.write("app.py", APP);
  await sandbox.commands.run("python3 app.py", { background: true, timeoutMs: 0 });
  let first = "";
  while (first === "") {
    first = await visit(sandbox);
    await sleep(100);
  }
  console.log(first);
  await sandbox.setTimeout(0);
  while ((await sandbox.getInfo()).state !== "paused") await sleep(100);
  console.log("no more visitors: paused");
  console.log(await visit(sandbox));
  console.log("woken by a request:", (await sandbox.getInfo()).state);
} finally {
  await sandbox.kill();
}
