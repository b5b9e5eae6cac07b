/**
 * A coding agent whose sandbox sleeps between its turns. While the model thinks, or a person reads, nothing runs; the
 * next tool call wakes the sandbox where it was, with the program that the agent had started.
 *
 * The model is scripted, so that the example needs no key. A real one takes `toolbox.anthropic` or `toolbox.openai`.
 */

import { Dormouse } from "@dormouse/sdk";
import { Toolbox } from "@dormouse/sdk/tools";

const SERVER = `
import http.server
visits = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global visits
        visits += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"visit {visits}\\n".encode())
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
`;

const VISIT = "curl --silent --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:8000";

/** What the model answers, turn by turn: text, and tools to use. */
const SCRIPT = [
  {
    text: "I write a server and start it.",
    uses: [
      { name: "write", input: { path: "/work/server.py", contents: SERVER } },
      { name: "exec", input: { command: "python3 /work/server.py > /work/log 2>&1 &" } },
      { name: "exec", input: { command: VISIT } },
    ],
  },
  { text: "Is it still there, with its count?", uses: [{ name: "exec", input: { command: VISIT } }] },
  {
    text: "I try a change that may break it, from a checkpoint.",
    uses: [
      { name: "checkpoint", input: { label: "working" } },
      { name: "edit", input: { path: "/work/server.py", old_text: "visits += 1", new_text: "visits = visits + one" } },
      { name: "exec", input: { command: "python3 -m py_compile /work/server.py && grep -c one /work/server.py" } },
    ],
  },
  { text: "The counter works across turns. Done.", uses: [] },
];

const dormouse = new Dormouse();
await using sandbox = await dormouse.sandboxes.create({
  image: "base",
  name: `agent-${crypto.randomUUID().slice(0, 8)}`,
});
const toolbox = new Toolbox(sandbox);

for (const { text, uses } of SCRIPT) {
  console.log(`model: ${text}`);
  if (uses.length === 0) break;
  if (sandbox.state === "suspended") {
    await sandbox.resume();
    console.log(`       (awake again, with its ${sandbox.info.restored})`);
  }
  for (const [at, use] of uses.entries()) {
    const result = await toolbox.answerAnthropic({ id: `toolu_${at}`, ...use });
    // The id of a snapshot differs from run to run.
    const shown = use.name === "checkpoint" ? "(id of a snapshot)" : result.content.replaceAll("\n", " ");
    console.log(`${use.name.padStart(10)}: ${shown}`);
  }
  await sandbox.suspend();
  console.log("       (asleep)");
}

for await (const { id } of dormouse.snapshots.list({ source: sandbox.id })) await dormouse.snapshots.delete(id);
