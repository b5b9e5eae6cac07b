/**
 * A project in Python and JavaScript that agents work on, which is uploaded, and installed with pip and npm. Each thread asks for its sandbox by a key, and gets it in whatever state it is: the
 * first is set up, others start from its snapshot, and one that has ended is restored.
 */

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

import { Dormouse, type EnsureRequest, SetupError } from "@dormouse/sdk";

const dormouse = new Dormouse();
const project = `project-${crypto.randomUUID().slice(0, 8)}`;

const directory = fileURLToPath(new URL("project", import.meta.url));
const archive = execFileSync("tar", ["--sort=name", "--mtime=@0", "--numeric-owner", "-C", directory, "-cf", "-", "."]);
const { hash } = await dormouse.builds.uploadContext(archive);
const pip = "pip install --quiet --no-index --no-build-isolation --break-system-packages --root-user-action=ignore";

const definition: EnsureRequest = {
  image: "tools",
  resources: { memoryBytes: 512 << 20 },
  env: { PROJECT: project },
  source: { context: hash },
  setup: [
    { parallel: [`${pip} --editable .`, "cd web && npm install --silent --offline"] },
    "echo '# Notes' > NOTES.md && node web/index.js",
  ],
  startCommand: "exec python3 -m http.server 8000",
  readyCommand: "python3 -c 'import shop, urllib.request as web; web.urlopen(\"http://localhost:8000/\")'",
};

async function ensure(thread: string, request: EnsureRequest = definition) {
  const ensured = await dormouse.environments.ensure({
    ...request,
    key: `${project}/${thread}`,
    onEvent: (event) => {
      if (event.type === "line" && event.line.stream === "stdout") console.log(`  ${event.line.text}`);
    },
  });
  console.log(`${thread}: ${ensured.by}${ensured.restored?.shared ? " from the snapshot of another thread" : ""}`);
  return ensured;
}

const one = await ensure("one");
console.log(`  steps: ${one.steps.map(({ state }) => state).join(", ")}`);
await ensure("two");

await one.sandbox.suspend();
await ensure("one");

await one.sandbox.terminate();
const again = await ensure("one");
const page = await (await again.sandbox.ports.fetch(8000, "/NOTES.md")).text();
console.log(`  its server runs, as in the snapshot: ${page.trim()}`);

const callers = await Promise.all(["three", "three", "three"].map((thread) => ensure(thread)));
console.log(`  ${new Set(callers.map(({ sandbox }) => sandbox.id)).size} sandbox for three callers`);

try {
  await ensure("four", { ...definition, setup: ["echo compiling", "python3 missing.py"] });
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  console.log(`four: step ${error.step + 1} (${error.title}) exited with code ${error.exitCode}`);
}

{
  const lifecycle = { snapshot: "after_run", destroyOnComplete: true } as const;
  await using run = await dormouse.environments.run({ ...definition, key: `${project}/five`, lifecycle });
  await run.sandbox.exec("echo 'a first result' >> NOTES.md", { cwd: "/workspace", signal: run.signal });
}
const { sandbox, environment } = await ensure("five");
console.log(`  after the run: ${(await sandbox.files.readText("/workspace/NOTES.md")).split("\n")[1]}`);
console.log(`  leases: ${environment.leases.length}`);

for await (const { id, key } of dormouse.environments.list()) {
  if (key?.startsWith(`${project}/`)) await dormouse.environments.remove(id);
}
