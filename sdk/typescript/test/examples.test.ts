/** Every example prints what is committed beside it, in Node and in Bun. */

import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { describe, expect, test } from "vitest";

import "./support.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const examples = readdirSync(`${root}examples`).filter((file) => file.endsWith(".ts"));

describe.each(["tsx", "bun"])("with %s", (runtime) => {
  test.each(examples)("%s", async (file) => {
    const { stdout } = await promisify(execFile)(`${root}node_modules/.bin/${runtime}`, [`examples/${file}`], {
      cwd: root,
    });
    expect(stdout).toBe(await readFile(`${root}examples/${file.replace(/ts$/, "out")}`, "utf8"));
  });
});
