/** The package that is published: packed, installed into a fresh project, and used from JavaScript and TypeScript. */

import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { afterAll, beforeAll, expect, test } from "vitest";

import { dormouse } from "./support.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("..", import.meta.url));
const bin = (name: string): string => join(root, "node_modules/.bin", name);

const PROGRAM = `
import { Dormouse, type Sandbox } from "@dormouse/sdk";
import { upload } from "@dormouse/sdk/node";
import { Toolbox } from "@dormouse/sdk/tools";

const dormouse = new Dormouse();
const sandbox: Sandbox = await dormouse.sandboxes.create({ image: "base", timeoutMs: 600_000 });
const { text } = await new Toolbox(sandbox).run("exec", { command: "echo packed" });
const pty = await sandbox.pty({ cmd: "exit 5" });
const { exitCode } = await pty.wait();
await sandbox.terminate();
console.log(typeof upload, text, exitCode);
`;
const PRINTS = "function packed\n[exit code 0] 5\n";
const script = PROGRAM.replace(", type Sandbox", "").replace(": Sandbox", "");

let project: string;

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), "dormouse-package-"));
  // The archive is packed from a build of its own, so that tests that run at the same time do not disturb each other.
  const copy = join(project, "packed");
  await mkdir(copy);
  for (const file of ["package.json", "README.md"]) await copyFile(join(root, file), join(copy, file));
  await run(bin("tsc"), ["-p", "tsconfig.build.json", "--outDir", join(copy, "dist")], { cwd: root });
  const { stdout } = await run("npm", ["pack", "--ignore-scripts", "--pack-destination", project], { cwd: copy });
  // The dependency is the one that is installed here, so that no registry is needed.
  const dependencies = { "@dormouse/sdk": `file:${stdout.trim()}`, ws: `file:${join(root, "node_modules/ws")}` };
  await writeFile(join(project, "package.json"), JSON.stringify({ private: true, type: "module", dependencies }));
  await run("npm", ["install", "--no-audit", "--no-fund", "--offline"], { cwd: project });
}, 240_000);

afterAll(async () => {
  await rm(project, { recursive: true });
});

test("is imported by Node", async () => {
  await writeFile(join(project, "program.js"), script);
  expect((await run("node", ["program.js"], { cwd: project })).stdout).toBe(PRINTS);
});

test("reaches the daemon by HTTPS, also for terminals", async () => {
  const { certificate } = await dormouse.authority();
  const NODE_EXTRA_CA_CERTS = join(project, "ca.pem");
  await writeFile(NODE_EXTRA_CA_CERTS, certificate);
  await writeFile(join(project, "program.js"), script);
  const DORM_SERVER = `https://localhost:${new URL(process.env["DORM_SERVER"]!).port}`;
  const env = { ...process.env, NODE_EXTRA_CA_CERTS, DORM_SERVER };
  expect((await run("node", ["program.js"], { cwd: project, env })).stdout).toBe(PRINTS);
});

test("is imported by a TypeScript program", async () => {
  await writeFile(join(project, "program.ts"), PROGRAM);
  const options = {
    target: "ES2022",
    module: "NodeNext",
    strict: true,
    exactOptionalPropertyTypes: true,
    noEmit: true,
    types: ["node"],
  };
  const typeRoots = [join(root, "node_modules/@types")];
  await writeFile(
    join(project, "tsconfig.json"),
    JSON.stringify({ compilerOptions: { ...options, typeRoots }, files: ["program.ts"] }),
  );
  const checked = await run(bin("tsc"), ["-p", project]).catch((error: { stdout: string }) => error);
  expect(checked.stdout).toBe("");
});

test("has only what it needs", async () => {
  const installed = readdirSync(join(project, "node_modules")).filter((name) => !name.startsWith("."));
  expect(installed.sort()).toEqual(["@dormouse", "ws"]);
  expect(existsSync(join(project, "node_modules/@dormouse/sdk/dist/index.d.ts"))).toBe(true);
  expect(existsSync(join(project, "node_modules/@dormouse/sdk/src"))).toBe(false);
});

test.each([
  ["Deno", "deno", ["run", "--allow-all", "--no-lock", "--node-modules-dir=manual"]],
  ["Bun", "bun", ["run"]],
])("is imported by %s", async (_, runtime, args) => {
  await writeFile(join(project, "program.mjs"), script);
  expect((await run(bin(runtime), [...args, "program.mjs"], { cwd: project })).stdout).toBe(PRINTS);
});
