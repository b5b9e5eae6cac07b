import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Reporter, TestModule } from "vitest/node";

/** Writes how many cases passed. */
export default class Counting implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const path = process.env["E2B_SUMMARY"];
    if (path === undefined) return;
    const client = process.env["E2B_CLIENT"] ?? "e2b";
    const { version } = createRequire(import.meta.url)(`${client}/package.json`) as { version: string };
    let passed = 0;
    for (const module of modules) for (const _ of module.children.allTests("passed")) passed += 1;
    writeFileSync(path, `e2b ${version} for JavaScript: ${passed} cases\n`);
  }
}
