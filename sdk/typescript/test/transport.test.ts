import { expect, test } from "vitest";

import {
  ApiError,
  ConflictError,
  Dormouse,
  DormouseError,
  InternalError,
  NotFoundError,
  TransportError,
  UnavailableError,
  UnexpectedResponseError,
} from "@dormouse/sdk";

import { chunk, drop, events, fake, json, problem } from "./fake.js";
import { failure } from "./support.js";

const HEALTH = { status: "ok" };
const SANDBOX = { id: "abc", state: "running", name: "web", labels: { snake_key: "v" }, timeout_secs: 1.5 };

test("a request has the key and the project", async () => {
  const { dormouse, received } = await fake([json(HEALTH)], { project: "team" });
  await dormouse.health();
  expect(received[0]?.headers).toMatchObject({ authorization: "Bearer k", "x-dormouse-project": "team" });
});

test("names and units are converted both ways, but not the keys of users", async () => {
  const { dormouse, received } = await fake([json(SANDBOX, 201)]);
  const sandbox = await dormouse.sandboxes.create({ image: "base", idleTimeoutMs: 2500, labels: { myKey: "v" } });
  expect(JSON.parse(received[0]!.body)).toEqual({ image: "base", idle_timeout_secs: 2.5, labels: { myKey: "v" } });
  expect(sandbox.info).toMatchObject({ timeoutMs: 1500, labels: { snake_key: "v" } });
});

test("a GET is repeated after a dropped connection", async () => {
  const { dormouse, received } = await fake([drop, drop, json(HEALTH)]);
  expect(await dormouse.health()).toEqual(HEALTH);
  expect(received).toHaveLength(3);
});

test("a POST that makes something is repeated with the same idempotency key", async () => {
  const { dormouse, received } = await fake([drop, json(SANDBOX, 201)]);
  await dormouse.sandboxes.create({ image: "base" });
  const keys = received.map(({ headers }) => headers["idempotency-key"]);
  expect(keys).toHaveLength(2);
  expect(keys[0]).toMatch(/^[0-9a-f-]{36}$/);
  expect(keys[1]).toBe(keys[0]);
  expect(received[1]?.body).toBe(received[0]?.body);
});

test("two calls have different idempotency keys", async () => {
  const { dormouse, received } = await fake([json(SANDBOX, 201)]);
  await dormouse.sandboxes.create({ image: "base" });
  await dormouse.sandboxes.create({ image: "base" });
  expect(received[0]?.headers["idempotency-key"]).not.toBe(received[1]?.headers["idempotency-key"]);
});

test("a caller can choose the idempotency key", async () => {
  const { dormouse, received } = await fake([json(SANDBOX, 201)]);
  await dormouse.sandboxes.create({ image: "base", idempotencyKey: "mine" });
  expect(received[0]?.headers["idempotency-key"]).toBe("mine");
  expect(received[0]?.body).not.toContain("mine");
});

test("other requests are not repeated", async () => {
  const { dormouse, received } = await fake([json(SANDBOX), drop]);
  const sandbox = await dormouse.sandboxes.connect("abc");
  await failure(sandbox.suspend(), TransportError);
  await failure(sandbox.files.write("/x", "y"), TransportError);
  await failure(sandbox.exec("true"), TransportError);
  await failure(dormouse.keys.delete("x"), TransportError);
  expect(received).toHaveLength(5);
});

test("a stream is not sent a second time", async () => {
  const { dormouse, received } = await fake([drop]);
  const archive = new Blob(["tar"]).stream();
  await failure(dormouse.snapshots.import(archive), TransportError);
  expect(received.length).toBeLessThanOrEqual(1);
});

test("retries are bounded", async () => {
  const { dormouse, received } = await fake([drop], { maxRetries: 2 });
  const error = await failure(dormouse.health(), TransportError);
  expect(error.message).toContain("the connection to http://127.0.0.1");
  expect(received).toHaveLength(3);
});

test("retries can be switched off", async () => {
  const { dormouse, received } = await fake([drop], { maxRetries: 0 });
  await failure(dormouse.health(), TransportError);
  expect(received).toHaveLength(1);
});

test("a daemon that is unavailable is asked again", async () => {
  const { dormouse, received } = await fake([problem("unavailable", 503), json(HEALTH)]);
  await dormouse.health();
  expect(received).toHaveLength(2);
});

test("Retry-After is respected", async () => {
  const { dormouse, received } = await fake([problem("no_room", 507, { "retry-after": "0" }), json(HEALTH)]);
  await dormouse.health();
  expect(received).toHaveLength(2);
});

test("a long Retry-After is left to the caller", async () => {
  const { dormouse, received } = await fake([problem("unavailable", 503, { "retry-after": "3600" })]);
  const error = await failure(dormouse.health(), UnavailableError);
  expect(error.retryAfterMs).toBe(3_600_000);
  expect(received).toHaveLength(1);
});

test.each([
  ["conflict", 409, ConflictError],
  ["not_found", 404, NotFoundError],
  ["internal", 500, InternalError],
] as const)("the error %s is not repeated", async (code, status, kind) => {
  const { dormouse, received } = await fake([problem(code, status)]);
  const error = await failure(dormouse.health(), kind);
  expect(error).toMatchObject({ code, status, message: `it is ${code}`, nextStep: "do something", name: kind.name });
  expect(error).toBeInstanceOf(ApiError);
  expect(received).toHaveLength(1);
});

test("a code of a later version is an ApiError", async () => {
  const { dormouse } = await fake([problem("too_sleepy", 418)]);
  const error = await failure(dormouse.health(), ApiError);
  expect(error).toMatchObject({ code: "too_sleepy", name: "ApiError" });
});

test("an answer of another server is told apart", async () => {
  const { dormouse } = await fake([
    (response) => response.writeHead(404, { "content-type": "text/html" }).end("<h1>Not here</h1>"),
  ]);
  const error = await failure(dormouse.health(), UnexpectedResponseError);
  expect(error.status).toBe(404);
});

test("an answer that is not JSON is told apart", async () => {
  const { dormouse } = await fake([(response) => response.end("hello")]);
  await failure(dormouse.health(), UnexpectedResponseError);
});

test("a daemon that cannot be reached is a TransportError with a cause", async () => {
  const dormouse = new Dormouse({ server: "http://127.0.0.1:1", maxRetries: 0 });
  const error = await failure(dormouse.health(), TransportError);
  expect(error.cause).toBeDefined();
});

test.each(["", "127.0.0.1:7070", "ftp://x", "http://"])("'%s' is not the address of a daemon", (server) => {
  expect(() => new Dormouse({ server })).toThrow(DormouseError);
});

test("an aborted call throws the reason of its signal", async () => {
  const { dormouse } = await fake([() => undefined]);
  const controller = new AbortController();
  const call = dormouse.health({ signal: controller.signal });
  controller.abort(new Error("enough"));
  await expect(call).rejects.toThrow("enough");
});

test("an abort also ends the pause before a retry", async () => {
  const { dormouse, received } = await fake([problem("unavailable", 503, { "retry-after": "50" })]);
  const controller = new AbortController();
  const call = dormouse.health({ signal: controller.signal });
  const rejected = expect(call).rejects.toThrow("enough");
  while (received.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  setTimeout(() => controller.abort(new Error("enough")), 20);
  await rejected;
  expect(received).toHaveLength(1);
});

test.each(["", ".", ".."])("the id '%s' cannot name another route", async (id) => {
  const { dormouse, received } = await fake([json(SANDBOX)]);
  await failure(dormouse.sandboxes.connect(id), TypeError);
  expect(received).toHaveLength(0);
});

test("ids are escaped", async () => {
  const { dormouse, received } = await fake([json(SANDBOX)]);
  await dormouse.images.get("registry.example.com/a:1");
  expect(received[0]?.url).toBe("/v1/images/registry.example.com%2Fa%3A1");
});

test("a list requests page after page", async () => {
  const { dormouse, received } = await fake([
    json({ sandboxes: [SANDBOX], next: "a b" }),
    json({ sandboxes: [{ ...SANDBOX, id: "def" }], next: null }),
  ]);
  const listed = await dormouse.sandboxes
    .list({ state: ["running", "suspended"], labels: { a: "1", b: "2" } })
    .toArray();
  expect(listed.map(({ id }) => id)).toEqual(["abc", "def"]);
  expect(received[0]?.url).toBe("/v1/sandboxes?label=a%3D1&label=b%3D2&state=running%2Csuspended");
  expect(new URL(received[1]!.url, "http://x").searchParams.get("after")).toBe("a b");
});

test("a change can be limited to a revision", async () => {
  const { dormouse, received } = await fake([json(SANDBOX)]);
  const sandbox = await dormouse.sandboxes.connect("abc");
  await sandbox.update({ name: "other" }, { ifRevision: 7 });
  expect(received[1]?.headers["if-match"]).toBe('"7"');
});

test("output continues where the connection was lost", async () => {
  const { dormouse, received } = await fake([
    json(SANDBOX),
    events(["started", { process: 5, pid: 50 }], ["stdout", chunk("one", 0), "3,0"]),
    events(["stdout", chunk("two", 3), "6,0"], ["stderr", chunk("err", 0), "6,3"]),
    events(["exit", { exit_code: 0, signal: null, timed_out: false }]),
  ]);
  const result = await (await dormouse.sandboxes.connect("abc")).exec("x");
  expect(result).toMatchObject({ stdout: "onetwo", stderr: "err", exitCode: 0, process: 5 });
  expect(received.slice(1).map(({ method, url }) => `${method} ${url}`)).toEqual([
    "POST /v1/sandboxes/abc/exec",
    "GET /v1/sandboxes/abc/processes/5/output?stdout=3&stderr=0",
    "GET /v1/sandboxes/abc/processes/5/output?stdout=6&stderr=3",
  ]);
});

test("a command whose start is unknown is not run again", async () => {
  const { dormouse, received } = await fake([json(SANDBOX), events()]);
  await failure((await dormouse.sandboxes.connect("abc")).exec("x"), TransportError);
  expect(received).toHaveLength(2);
});

test("a daemon that stops in the middle of output is an error after some attempts", async () => {
  const { dormouse } = await fake(
    [json(SANDBOX), events(["started", { process: 5, pid: 50 }], ["stdout", chunk("one", 0)]), drop],
    {
      maxRetries: 0,
    },
  );
  await failure((await dormouse.sandboxes.connect("abc")).exec("x"), TransportError);
}, 20_000);

test("an error in a stream is an ApiError", async () => {
  const { dormouse } = await fake([
    json(SANDBOX),
    events(
      ["started", { process: 5, pid: 50 }],
      ["error", { code: "gone", status: 410, detail: "it is terminated", next_step: "" }],
    ),
  ]);
  const error = await failure((await dormouse.sandboxes.connect("abc")).exec("x"), ApiError);
  expect(error).toMatchObject({ code: "gone", name: "GoneError", status: 410 });
});

test("a fork that may be partial has an error for each child that could not be created", async () => {
  const error = { type: "", title: "", status: 507, code: "no_room", detail: "the host is full", next_step: "wait" };
  const { dormouse, received } = await fake([
    json(SANDBOX),
    json(
      {
        children: [
          { sandbox: SANDBOX, error: null },
          { sandbox: null, error },
        ],
      },
      201,
    ),
  ]);
  const [made, failed] = await (await dormouse.sandboxes.connect("abc")).tryFork(2);
  expect(made?.sandbox?.id).toBe("abc");
  expect(failed?.error).toMatchObject({
    name: "NoRoomError",
    message: "the host is full",
    nextStep: "wait",
    status: 507,
  });
  expect(JSON.parse(received[1]!.body)).toEqual({ count: 2, on_partial_failure: "keep" });
});

test("events continue after the last one that was received", async () => {
  const { dormouse, received } = await fake([
    events(["event", { number: 4, kind: "created" }, "4"]),
    events(["event", { number: 5, kind: "suspended" }, "5"]),
  ]);
  const numbers: number[] = [];
  for await (const event of dormouse.events.follow({ after: 3 })) {
    numbers.push(event.number);
    if (numbers.length === 2) break;
  }
  expect(numbers).toEqual([4, 5]);
  expect(received.map(({ url }) => url)).toEqual(["/v1/events?after=3", "/v1/events?after=4"]);
});

test("a pull reports its progress and returns the image", async () => {
  const { dormouse, received } = await fake([
    events(
      ["progress", { stage: "fetching", bytes: 1, bytes_total: 2, entries: 0 }],
      ["done", { digest: "d", created_at: "t" }],
    ),
  ]);
  const stages: string[] = [];
  const image = await dormouse.images.pull("x:1", {
    tag: "t",
    onProgress: ({ stage, bytesTotal }) => stages.push(`${stage} ${bytesTotal}`),
  });
  expect(image).toMatchObject({ digest: "d", createdAt: "t" });
  expect(stages).toEqual(["fetching 2"]);
  expect(JSON.parse(received[0]!.body)).toEqual({ reference: "x:1", tag: "t" });
});

test("a pull whose stream ends early is an error", async () => {
  const { dormouse } = await fake([events(["progress", { stage: "fetching", bytes: 1, entries: 0 }])]);
  await failure(dormouse.images.pull("x:1"), TransportError);
});
