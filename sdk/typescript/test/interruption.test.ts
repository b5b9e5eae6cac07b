/** Lost connections between the SDK and a real daemon: nothing is lost, and nothing is made twice. */

import { expect, test } from "vitest";

import { type Event, TransportError } from "@dormouse/sdk";

import { throughProxy } from "./proxy.js";
import { cleanUp, createSandbox, dormouse, failure, unique } from "./support.js";

/** Prints numbered lines, slowly enough that what is printed without a reader is still kept. */
const COUNT = "import time\nfor n in range(1500):\n  print(n, 'x' * 50, flush=True)\n  time.sleep(0.001)";

const countedBy = (text: string): number[] => [...text.matchAll(/^(\d+) x+$/gm)].map(([, number]) => Number(number));
const all = Array.from({ length: 1500 }, (_, number) => number);

test("a sandbox is created once if the answer is lost", async () => {
  const run = unique("lost");
  let isFirst = true;
  const { dormouse: flaky, cuts } = await throughProxy((request) => {
    if (!isFirst || !request.startsWith("POST /v1/sandboxes ")) return undefined;
    isFirst = false;
    return 0;
  });
  const sandbox = await flaky.sandboxes.create({ image: "base", labels: { run } });
  cleanUp(() => sandbox.terminate());
  expect(cuts()).toBe(1);
  const made = await dormouse.sandboxes.list({ labels: { run } }).toArray();
  expect(made.map(({ id }) => id)).toEqual([sandbox.id]);
});

test("a snapshot is taken once if the answer is lost", async () => {
  const { id } = await createSandbox({ name: unique("lost") });
  let isFirst = true;
  const { dormouse: flaky } = await throughProxy((request) => {
    if (!isFirst || !request.includes("/checkpoint ")) return undefined;
    isFirst = false;
    return 0;
  });
  const snapshot = await (await flaky.sandboxes.connect(id)).checkpoint();
  expect((await dormouse.snapshots.list({ source: id }).toArray()).map((it) => it.id)).toEqual([snapshot.id]);
});

test("a command has all its output although its connection is cut again and again", async () => {
  const { id } = await createSandbox({ name: unique("cut") });
  const { dormouse: flaky, cuts } = await throughProxy((request) =>
    /\/exec |\/output/.test(request) ? 20_000 : undefined,
  );
  const result = await (await flaky.sandboxes.connect(id)).exec(["python3", "-c", COUNT]);
  expect(cuts()).toBeGreaterThan(3);
  expect(result).toMatchObject({ exitCode: 0, lostBytes: 0 });
  expect(countedBy(result.stdout)).toEqual(all);
});

test("a process has all its output although its connection is cut again and again", async () => {
  const sandbox = await createSandbox({ name: unique("cut") });
  const { id } = await sandbox.processes.start(["python3", "-c", COUNT]);
  const { dormouse: flaky, cuts } = await throughProxy((request) => (request.includes("/output") ? 20_000 : undefined));
  const process = await (await flaky.sandboxes.connect(sandbox.id)).processes.get(id);
  let text = "";
  for await (const event of process.output()) if (event.type === "stdout") text += event.text;
  expect(cuts()).toBeGreaterThan(3);
  expect(countedBy(text)).toEqual(all);
});

test("a followed log has every event although its connection is cut again and again", async () => {
  const sandbox = await createSandbox({ name: unique("log") });
  const { dormouse: flaky, cuts } = await throughProxy((request) => (request.includes("/events") ? 2000 : undefined));
  for (let turn = 0; turn < 4; turn++) {
    await sandbox.suspend();
    await sandbox.resume();
  }
  const expected = await sandbox.events.list().toArray();
  const followed: Event[] = [];
  for await (const event of (await flaky.sandboxes.connect(sandbox.id)).events.follow()) {
    followed.push(event);
    if (followed.length === expected.length) break;
  }
  expect(followed).toEqual(expected);
  expect(cuts()).toBeGreaterThan(0);
});

test("a download that breaks off is an error, not a short file", async () => {
  const sandbox = await createSandbox({ name: unique("short") });
  await sandbox.files.write("/big", new Uint8Array(4 << 20));
  const { dormouse: flaky } = await throughProxy((request) => (request.includes("/files") ? 1 << 20 : undefined));
  const files = (await flaky.sandboxes.connect(sandbox.id)).files;
  await failure(files.read("/big"), TransportError);
  const read = async (): Promise<void> => {
    for await (const _ of await files.readStream("/big")) void _;
  };
  await failure(read(), TransportError);
});
