/** What the tests share: a client of the daemon under test, providers, and clean-up. */

import { Dormouse } from "@dormouse/sdk";
import { afterAll } from "vitest";

import { dormouseSandbox, type DormouseProvider, type DormouseSandboxOptions } from "../src/index.js";

if (!process.env["DORM_SERVER"]) throw new Error("set DORM_SERVER and DORM_KEY: the daemon under test");

/** The daemon under test. */
export const dormouse = new Dormouse();

/** Identifies everything that this file makes. */
const run = `t${crypto.randomUUID().slice(0, 8)}`;

/** A provider whose sandboxes and environments are removed after the tests of this file. */
export function provider(options: DormouseSandboxOptions = {}): DormouseProvider {
  const resources = { memoryBytes: 256 << 20 };
  return dormouseSandbox({ client: dormouse, resources, ...options, labels: { run } });
}

/** A name that no other test run has. */
export function unique(prefix: string): string {
  return `${prefix}-${crypto.randomUUID().slice(0, 8)}`;
}

afterAll(async () => {
  const sources: string[] = [];
  const used = new Set<string | undefined>();
  for await (const sandbox of dormouse.sandboxes.list({ labels: { run } })) {
    if (sandbox.state !== "terminated") await dormouse.sandboxes.delete(sandbox.id);
    sources.push(sandbox.id);
    used.add(sandbox.labels["dorm.environment"]);
  }
  for await (const { id } of dormouse.environments.list()) if (used.has(id)) await dormouse.environments.remove(id);
  for (const source of sources) {
    for await (const { id } of dormouse.snapshots.list({ source }))
      await dormouse.snapshots.delete(id, { whenFree: true });
  }
});

const DEADLINE_MS = 30_000;

/** Calls a function until it returns something, and fails after half a minute. */
export async function until<T>(what: string, look: () => Promise<T | undefined | false>): Promise<T> {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found as T;
    if (Date.now() > deadline) throw new Error(`in ${DEADLINE_MS / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
