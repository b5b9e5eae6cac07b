import { describe, expect, test } from "vitest";

import { fromBase64, toBase64 } from "../src/bytes.js";
import { camelCase, snakeCase } from "../src/names.js";
import { parseEvents, type ServerEvent } from "../src/sse.js";
import { fromWire, toQuery, toWire } from "../src/wire.js";

describe("names", () => {
  test.each([
    ["id", "id"],
    ["port_rules", "portRules"],
    ["idle_timeout_secs", "idleTimeoutMs"],
    ["sha256", "sha256"],
  ])("%s is %s", (wire, name) => {
    expect(camelCase(wire)).toBe(name);
    expect(snakeCase(name)).toBe(wire);
  });
});

describe("values", () => {
  test("bytes are base64 in requests", () => {
    expect(toWire({ stdin: Uint8Array.of(255, 0) })).toEqual({ stdin: { base64: "/wA=" } });
  });

  test("undefined is left out, null is kept", () => {
    expect(toWire({ a: undefined, b: null })).toEqual({ b: null });
  });

  test("bytes that are not UTF-8 are beside the text in responses", () => {
    expect(fromWire({ path: { base64: "YYA=" } })).toEqual({ path: "a\ufffd", pathBytes: Uint8Array.of(0x61, 0x80) });
    expect(fromWire({ argv: ["a", { base64: "/w==" }] })).toEqual({ argv: ["a", "\ufffd"] });
  });

  test("keys of users stay at every level of a map", () => {
    const annotations = { my_app: { some_key: "x" } };
    expect(toWire({ annotations })).toEqual({ annotations });
    expect(fromWire({ annotations })).toEqual({ annotations });
    expect(fromWire({ tags: { my_tag: { created_at: "t" } } })).toEqual({ tags: { my_tag: { createdAt: "t" } } });
  });

  test("durations have no error of binary fractions", () => {
    expect(fromWire({ cpu_secs: 1.1, took_ms: 3 })).toEqual({ cpuMs: 1100, tookMs: 3 });
    expect(toWire({ timeoutMs: 1 })).toEqual({ timeout_secs: 0.001 });
  });

  test("a list in a query is one pair for each item", () => {
    expect(toQuery({ label: ["a=1", "b=2"], waitMs: 500, after: undefined })).toEqual([
      ["label", "a=1"],
      ["label", "b=2"],
      ["wait_secs", "0.5"],
    ]);
  });

  test("base64 of any length is decoded to what was encoded", () => {
    for (const length of [0, 1, 2, 3, 100_000]) {
      const bytes = Uint8Array.from({ length }, (_, at) => (at * 7) % 256);
      expect(fromBase64(toBase64(bytes))).toEqual(bytes);
    }
  });
});

describe("server-sent events", () => {
  const text =
    ': hello\n\nevent: stdout\nid: 7\ndata: {"a":1}\n\n:\nevent: exit\r\ndata:x\r\ndata: ü\r\n\r\ndata: half';
  const expected: ServerEvent[] = [
    { kind: "stdout", id: "7", data: '{"a":1}' },
    { kind: "exit", id: "7", data: "x\nü" },
  ];

  test("are the same however they are cut", async () => {
    const bytes = new TextEncoder().encode(text);
    for (let size = 1; size <= bytes.length; size++) {
      const pieces: Uint8Array[] = [];
      for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
      const stream = new ReadableStream<Uint8Array>({
        pull(controller) {
          const piece = pieces.shift();
          if (piece === undefined) controller.close();
          else controller.enqueue(piece);
        },
      });
      const parsed: ServerEvent[] = [];
      for await (const event of parseEvents(stream)) parsed.push(event);
      expect(parsed, `pieces of ${size}`).toEqual(expected);
    }
  });

  test("close their connection when the reader leaves", async () => {
    let isCancelled = false;
    const stream = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new TextEncoder().encode("data: 1\n\ndata: 2\n\n")),
      cancel: () => void (isCancelled = true),
    });
    for await (const event of parseEvents(stream)) {
      expect(event.data).toBe("1");
      break;
    }
    expect(isCancelled).toBe(true);
  });
});
