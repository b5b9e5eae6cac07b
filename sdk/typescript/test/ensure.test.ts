/** Asking for an environment while the daemon stops, starts again, or does not exist. */

import { expect, test } from "vitest";

import { DamagedError, type EnsureEvent, Run, SetupError, TransportError } from "@dormouse/sdk";

import { drop, events, fake, json, problem } from "./fake.js";
import { failure } from "./support.js";

const CONSIDERED = [{ way: "create", verdict: "taken", reason: null }];
const ENSURED = {
  sandbox: { id: "abc", state: "running" },
  by: "created",
  phases: [{ name: "setup", took_secs: 1.5 }],
};
const environment = (attempt: string, more: object = {}) => ({
  id: "e",
  state: "working",
  attempt: { id: attempt, ...more },
});
const line = (offset: number, text: string) => ({ offset, text, stream: "stdout", step: 0 });
const stopping = { code: "unavailable", detail: "the daemon is stopping", status: 503, next_step: "" };

test("what a daemon that starts again has told before is not told twice", async () => {
  const { dormouse, received } = await fake([
    events(["considered", CONSIDERED], ["attempt", environment("1")], ["line", line(0, "a")], ["error", stopping]),
    drop,
    events(["attempt", environment("1")], ["line", line(0, "a")], ["line", line(1, "b")]),
    events(["line", line(1, "b")], ["line", line(2, "c")]),
    events(["ensured", ENSURED]),
    json(environment("1")),
    json({ lines: [line(3, "d")], next_offset: 4, in_progress: false }),
    json({ lines: [], next_offset: 4, in_progress: false }),
  ]);
  const told: EnsureEvent[] = [];
  for await (const event of dormouse.environments.follow({ key: "k", image: "base" })) told.push(event);
  expect(told.flatMap((event) => (event.type === "line" ? [event.line.text] : []))).toEqual(["a", "b", "c", "d"]);
  expect(told.at(-1)).toMatchObject({
    type: "ensured",
    ensured: { sandbox: { id: "abc", state: "running" }, phases: [{ name: "setup", tookMs: 1500 }] },
  });
  const asked = received.filter(({ url }) => url === "/v1/ensure").map(({ body }) => body);
  expect(asked).toEqual(Array(5).fill('{"key":"k","image":"base"}'));
  expect(received.at(-2)?.url).toBe("/v1/environments/e/logs?offset=3&wait_secs=0");
});

test("the log of another attempt is told from its beginning", async () => {
  const { dormouse } = await fake([
    events(["attempt", environment("1")], ["line", line(0, "a")]),
    events(["attempt", environment("2")], ["line", line(0, "b")], ["ensured", ENSURED]),
    json(environment("3")),
  ]);
  const texts: string[] = [];
  const onEvent = (event: EnsureEvent) => event.type === "line" && texts.push(event.line.text);
  await dormouse.environments.ensure({ key: "k", image: "base", onEvent });
  expect(texts).toEqual(["a", "b"]);
});

test("a daemon that never answers is not waited for", async () => {
  const { dormouse, received } = await fake([drop], { maxRetries: 1 });
  await failure(dormouse.environments.ensure({ key: "k", image: "base" }), TransportError);
  expect(received).toHaveLength(2);
});

test("one that is for a single request is not asked for again", async () => {
  const { dormouse, received } = await fake([events(["considered", CONSIDERED]), events(["ensured", ENSURED])]);
  const once = { image: "base", lifecycle: { reuse: "none" } } as const;
  await failure(dormouse.environments.ensure(once), TransportError);
  expect(received).toHaveLength(1);
});

test("a failure is no interruption", async () => {
  const damaged = { ...stopping, code: "damaged", status: 500 };
  const { dormouse, received } = await fake([
    events(["considered", CONSIDERED], ["error", damaged]),
    events(["ensured", ENSURED]),
  ]);
  await failure(dormouse.environments.ensure({ key: "k", image: "base" }), DamagedError);
  expect(received).toHaveLength(1);
});

test("a failed attempt is told apart from the one before, and from one that cannot be read", async () => {
  const failed = { ...stopping, code: "failed", status: 500 };
  const began = events(["attempt", environment("2")], ["error", failed]);
  const why = { failure: { code: "failed", reason: "r", step: 0, exit_code: 3, kept: null } };
  const ask = async (...answers: Parameters<typeof fake>[0]) => {
    const { dormouse } = await fake([began, ...answers], { maxRetries: 0 });
    return await dormouse.environments.ensure({ key: "k", image: "base" }).catch((error: unknown) => error);
  };
  expect(await ask(json(environment("2", { ...why, steps: [{ title: "exit 3" }] })))).toMatchObject({
    ...{ name: "SetupError", step: 0, exitCode: 3, title: "exit 3", message: failed.detail },
  });
  expect(await ask(json(environment("3", why)))).not.toBeInstanceOf(SetupError);
  expect(await ask(problem("not_found", 404))).toMatchObject({ code: "failed", name: "FailedError" });
});

test("a caller can stop waiting for a daemon that starts again", async () => {
  const { dormouse } = await fake([events(["considered", CONSIDERED]), problem("unavailable", 503)], { maxRetries: 0 });
  const signal = AbortSignal.timeout(100);
  const error = await failure(dormouse.environments.ensure({ key: "k", image: "base", signal }), Error);
  expect(error.name).toBe("TimeoutError");
});

test("a lease is renewed again after a daemon could not be reached", async () => {
  const lease = { id: "l", expires_at: "2030-01-01T00:00:00Z" };
  const ensured = events(["ensured", { ...ENSURED, environment: environment("1"), lease }]);
  const later = { ...lease, expires_at: "2031-01-01T00:00:00Z" };
  const { dormouse, received } = await fake(
    [ensured, problem("internal", 500), drop, json(later), json(environment("1"))],
    { maxRetries: 0 },
  );
  const run = await dormouse.environments.run({ key: "k", image: "base", leaseMs: 60 });
  expect(run).toBeInstanceOf(Run);
  while (run.lease.expiresAt !== later.expires_at) await new Promise((resolve) => setTimeout(resolve, 5));
  run.fail();
  await run.end();
  expect(run.signal.aborted).toBe(false);
  expect(JSON.parse(received[0]!.body)).toMatchObject({ lease_secs: 0.06 });
  expect(received[1]).toMatchObject({ url: "/v1/environments/e/leases/l/renew", body: '{"lease_secs":0.06}' });
  expect(JSON.parse(received.at(-1)!.body)).toEqual({ lease: "l", outcome: "failed" });
});

test("a change of the API that leaves out the lease is an error", async () => {
  const { dormouse } = await fake([events(["ensured", { ...ENSURED, environment: environment("1"), lease: null }])]);
  await expect(dormouse.environments.run({ key: "k", image: "base" })).rejects.toThrow("no lease");
});
