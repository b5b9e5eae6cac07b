/** Every code block of the README runs, and prints what its comments say. */

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { expect, test } from "vitest";

import { unique } from "./support.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("..", import.meta.url));

async function blocks(language: string): Promise<string[]> {
  const readme = await readFile(new URL("../README.md", import.meta.url), "utf8");
  return [...readme.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].flatMap(([, kind, code]) =>
    kind === language ? [code!] : [],
  );
}

/** The blocks as one program: the imports, the first block, and each further one in a scope of its own. */
function program(parts: string[], name: string, directory: string): string {
  const isImport = (line: string): boolean => line.startsWith("import ");
  const lines = parts.map((part) => part.split("\n"));
  const bodies = lines.map((part) => part.filter((line) => !isImport(line)).join("\n"));
  const [first, ...others] = bodies;
  return [...lines.flat().filter(isImport), first, ...others.map((body) => `{\n${body}}`)]
    .join("\n")
    .replaceAll('"hello"', `"${name}"`)
    .replaceAll("/tmp/dormouse-notes.txt", `${directory}/notes.txt`);
}

test("the blocks of TypeScript", async () => {
  const parts = await blocks("ts");
  const name = unique("hello");
  const directory = await mkdtemp(`${root}test/.readme-`);
  try {
    await writeFile(`${directory}/readme.ts`, program(parts, name, directory));
    await writeFile(
      `${directory}/tsconfig.json`,
      JSON.stringify({ extends: `${root}tsconfig.json`, include: ["readme.ts"] }),
    );
    await run(`${root}node_modules/.bin/tsc`, ["-p", directory], { cwd: root }).catch(complain);
    const { stdout } = await run(`${root}node_modules/.bin/tsx`, [`${directory}/readme.ts`], { cwd: root }).catch(
      complain,
    );
    expect(stdout.trim().split("\n")).toEqual(promised(parts).map((line) => line.replace(/^hello$/, name)));
  } finally {
    await rm(directory, { recursive: true });
  }
}, 120_000);

test("the blocks of shell are run by the test of the package", async () => {
  expect(await blocks("sh")).toEqual(["npm install @dormouse/sdk\n"]);
});

/** The lines that the comments behind `console.log` say are printed. */
function promised(parts: string[]): string[] {
  const comments = parts.join("").matchAll(/console\.log\(.*; \/\/ (.+)$/gm);
  return [...comments].flatMap(([, comment]) => (comment === "40, 42" ? ["40", "42"] : [comment!]));
}

function complain(error: { stdout?: string; stderr?: string }): never {
  throw new Error(`${error.stdout ?? ""}${error.stderr ?? ""}`);
}
