/** The package that is published, in a fresh project with the packages that it needs. */

import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { afterAll, beforeAll, expect, test } from "vitest";

import "./support.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("..", import.meta.url));
const sdk = join(root, "../../sdk/typescript");
const tsc = join(root, "node_modules/.bin/tsc");

const PROGRAM = `
import { dormouseSandbox, type DormouseHandle } from "@dormouse/ai-sandbox";
import { defineSandbox, defineWorkspace } from "@tanstack/ai-sandbox";

const provider = dormouseSandbox({ source: { image: "base" } });
const workspace = defineWorkspace({ source: { type: "none" }, setup: ["echo ready > state"] });
const sandbox = defineSandbox({ id: "agent", provider, workspace, lifecycle: { snapshot: "none" } });

const run = { threadId: crypto.randomUUID(), runId: "1" };
const handle = (await sandbox.ensure(run)) as DormouseHandle;
console.log((await handle.process.exec("cat state")).stdout.trim(), handle.sandbox.state);
await sandbox.destroy(run);
`;

let project: string;

/** Packs a package whose sources were compiled into a directory beside its manifest. */
async function pack(source: string, target: string): Promise<string> {
  for (const file of ["package.json", "README.md"]) await copyFile(join(source, file), join(target, file));
  const { stdout } = await run("npm", ["pack", "--ignore-scripts", "--pack-destination", project], { cwd: target });
  return join(project, stdout.trim());
}

async function compile(source: string, target: string, paths: object): Promise<void> {
  const typeRoots = [join(source, "node_modules/@types")];
  const compilerOptions = { outDir: join(target, "dist"), rootDir: join(source, "src"), paths, typeRoots };
  const config = { extends: join(source, "tsconfig.build.json"), compilerOptions, include: [join(source, "src")] };
  await writeFile(join(target, "tsconfig.json"), JSON.stringify(config));
  await run(tsc, ["-p", target], { cwd: source }).catch((error: { stdout: string }) => {
    throw new Error(error.stdout);
  });
}

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), "dormouse-tanstack-"));
  const [builtSdk, built] = [join(project, "sdk"), join(project, "provider")];
  await mkdir(builtSdk);
  await mkdir(built);
  await compile(sdk, builtSdk, {});
  await compile(root, built, { "@dormouse/sdk": [join(builtSdk, "dist/index.d.ts")] });
  const archives = [await pack(sdk, builtSdk), await pack(root, built)];
  // The layer is the one that is installed here, so that no registry is needed.
  const layer = ["@tanstack/ai-sandbox", "@tanstack/ai"].map((name) => [
    name,
    `file:${join(root, "node_modules", name)}`,
  ]);
  const own = ["@dormouse/sdk", "@dormouse/ai-sandbox"].map((name, at) => [name, `file:${archives[at]}`]);
  const dependencies = { ...Object.fromEntries([...own, ...layer]), ws: `file:${join(sdk, "node_modules/ws")}` };
  await writeFile(join(project, "package.json"), JSON.stringify({ private: true, type: "module", dependencies }));
  await run("npm", ["install", "--no-audit", "--no-fund", "--offline"], { cwd: project });
}, 240_000);

afterAll(async () => {
  await rm(project, { recursive: true });
});

test("is used by a program", async () => {
  await writeFile(
    join(project, "program.mjs"),
    PROGRAM.replace(", type DormouseHandle", "").replace(" as DormouseHandle", ""),
  );
  expect((await run("node", ["program.mjs"], { cwd: project })).stdout).toBe("ready running\n");
});

test("has types", async () => {
  await writeFile(join(project, "program.ts"), PROGRAM);
  const options = { target: "ES2022", module: "NodeNext", strict: true, noEmit: true, skipLibCheck: true };
  const types = { types: ["node"], typeRoots: [join(root, "node_modules/@types")] };
  const config = { compilerOptions: { ...options, ...types }, files: ["program.ts"] };
  await writeFile(join(project, "tsconfig.json"), JSON.stringify(config));
  const checked = await run(tsc, ["-p", project]).catch((error: { stdout: string }) => error);
  expect(checked.stdout).toBe("");
});
