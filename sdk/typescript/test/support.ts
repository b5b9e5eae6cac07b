/** What the tests share: a client of the daemon under test, names, and clean-up. */

import { afterAll, expect, onTestFinished } from "vitest";

import { type CreateOptions, Dormouse, NotFoundError, type Sandbox } from "@dormouse/sdk";

if (!process.env["DORM_SERVER"]) throw new Error("set DORM_SERVER and DORM_KEY: the daemon under test");

/** The daemon under test. */
export const dormouse = new Dormouse();

/** A name that no other test run has. */
export function unique(prefix: string): string {
  return `${prefix}-${crypto.randomUUID().slice(0, 8)}`;
}

/** Undoes something at the end of the test, or if no test runs, at the end of the file. The last comes first. */
export function cleanUp(undo: () => Promise<unknown>): void {
  const once = async (): Promise<void> => {
    await undo().catch((error: unknown) => {
      if (!(error instanceof NotFoundError)) throw error;
    });
  };
  if (expect.getState().currentTestName === undefined) leftovers.push(once);
  else onTestFinished(once);
}

const leftovers: (() => Promise<void>)[] = [];

afterAll(async () => {
  for (const undo of leftovers.splice(0).reverse()) await undo();
});

/** Creates a sandbox for the tests of this file. */
export async function createSandbox(options: CreateOptions = {}): Promise<Sandbox> {
  const source = options.snapshot ?? options.template ?? options.image;
  const sandbox = await dormouse.sandboxes.create(source === undefined ? { image: "base", ...options } : options);
  cleanUp(() => deleteSnapshots(sandbox));
  cleanUp(() => sandbox.terminate());
  return sandbox;
}

async function deleteSnapshots({ id: source }: Sandbox): Promise<void> {
  for await (const { id } of dormouse.snapshots.list({ source })) {
    await dormouse.snapshots.delete(id, { whenFree: true });
  }
}

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

/** The error that a promise is rejected with. */
export async function failure<E extends Error>(
  promise: Promise<unknown>,
  kind: abstract new (...args: never[]) => E,
): Promise<E> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof kind)) throw new Error(`expected a ${kind.name}, not ${String(error)}`);
  return error;
}
