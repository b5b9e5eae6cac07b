/** The SDK against the OpenAPI document and the documentation of the project. */

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";
import { expect, test } from "vitest";

import { errorClasses } from "@dormouse/sdk";

import { generate } from "../scripts/generate.js";
import { routes } from "../src/generated/operations.js";

const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

test("the generated files are up to date", async () => {
  for (const [file, text] of await generate()) {
    expect(readFileSync(file, "utf8") === text, `${file}: run 'npm run generate'`).toBe(true);
  }
});

test("every operation of the API can be called", () => {
  const document = JSON.parse(readFileSync(path("../../../docs/reference/openapi.json"), "utf8")) as {
    paths: Record<string, Record<string, { operationId: string }>>;
  };
  const documented = Object.values(document.paths).flatMap((methods) =>
    Object.values(methods).map((it) => it.operationId),
  );
  const called = new Set<string>();
  for (const file of sources()) {
    const calls = readFileSync(file, "utf8").matchAll(/\.(?:call|download|events|listen|finish|url)\(\s*"(\w+)"/g);
    for (const [, operation] of calls) called.add(operation!);
  }
  expect([...called].sort()).toEqual([...documented].sort());
  expect(Object.keys(routes).sort()).toEqual([...documented].sort());
});

test("every documented code of an error has a class", () => {
  const codes = [...readFileSync(path("../../../docs/reference/errors.md"), "utf8").matchAll(/^\| `(\w+)` \|/gm)];
  expect(Object.keys(errorClasses).sort()).toEqual(codes.map(([, code]) => code).sort());
});

test("the core imports nothing of Node", () => {
  for (const file of sources().filter((file) => !file.endsWith("/node.ts"))) {
    expect(readFileSync(file, "utf8"), file).not.toMatch(/from "node:|import\("node:/);
  }
});

test("the core can be bundled for browsers", async () => {
  const options = { bundle: true, write: false, format: "esm", platform: "browser", logLevel: "silent" } as const;
  const { errors, outputFiles } = await build({ ...options, entryPoints: [path("../src/index.ts")] });
  expect(errors).toEqual([]);
  expect(outputFiles[0]?.text).not.toMatch(/from "(node:|ws")/);
});

function sources(): string[] {
  const files = readdirSync(path("../src"), { recursive: true, encoding: "utf8" });
  return files.filter((file) => file.endsWith(".ts")).map((file) => path(`../src/${file}`));
}
