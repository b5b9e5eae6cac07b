import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { beforeAll, describe, expect, test } from "vitest";

import type { Sandbox } from "@dormouse/sdk";
import { sandboxTools } from "@dormouse/sdk/ai";
import { Toolbox } from "@dormouse/sdk/tools";

import { createSandbox, unique } from "./support.js";

let sandbox: Sandbox;
let toolbox: Toolbox;

beforeAll(async () => {
  sandbox = await createSandbox({ name: unique("tools") });
  toolbox = new Toolbox(sandbox, { maxChars: 1000 });
});

const run = async (name: string, input: unknown): Promise<string> => {
  const { text, isError } = await toolbox.run(name, input);
  return isError ? `error: ${text}` : text;
};

describe("definitions", () => {
  test("are in the format of Anthropic", () => {
    expect(toolbox.anthropic.map(({ name }) => name)).toEqual([
      "exec",
      "read",
      "write",
      "edit",
      "checkpoint",
      "rewind",
    ]);
    expect(toolbox.anthropic[0]).toMatchObject({ input_schema: { type: "object", required: ["command"] } });
  });

  test("are in the format of OpenAI, and can be a selection", () => {
    const some = new Toolbox(sandbox, { tools: ["read", "exec"] });
    expect(some.openai.map((it) => [it.type, it.function.name])).toEqual([
      ["function", "exec"],
      ["function", "read"],
    ]);
  });
});

describe("tools", () => {
  test("run commands, and return their output and end", async () => {
    expect(await run("exec", { command: "echo out; echo err >&2; exit 3" })).toBe("out\nerr\n[exit code 3]");
    expect(await run("exec", { command: "pwd", cwd: "/var" })).toBe("/var\n[exit code 0]");
    expect(await run("exec", { command: "sleep 600", timeout_seconds: 1 })).toBe("[killed after 1 s]");
    expect(await run("exec", { command: "kill -9 $$" })).toBe("[ended by signal 9]");
  });

  test("leave out the middle of long results", async () => {
    const text = await run("exec", { command: "seq 1 100000" });
    expect(text.length).toBeLessThan(1100);
    expect(text).toMatch(/^1\n2\n/);
    expect(text).toMatch(/characters left out …\][^]*100000\n\[exit code 0\]$/);
  });

  test("write, read and edit files", async () => {
    expect(await run("write", { path: "/w/a.txt", contents: "one\ntwo\nthree\ntwo\n" })).toBe("wrote /w/a.txt");
    expect(await run("read", { path: "/w/a.txt", first_line: 2, line_count: 2 })).toBe("two\nthree");
    expect(await run("edit", { path: "/w/a.txt", old_text: "three", new_text: "3 $& $1" })).toBe(
      "replaced 1 occurrence in /w/a.txt",
    );
    expect(await run("edit", { path: "/w/a.txt", old_text: "two", new_text: "2" })).toMatch(
      /^error: old_text occurs 2 times/,
    );
    expect(await run("edit", { path: "/w/a.txt", old_text: "two", new_text: "2", replace_all: true })).toBe(
      "replaced 2 occurrences in /w/a.txt",
    );
    expect(await run("read", { path: "/w/a.txt" })).toBe("one\n2\n3 $& $1\n2\n");
    expect(await run("edit", { path: "/w/a.txt", old_text: "four", new_text: "4" })).toMatch(
      /^error: old_text does not occur/,
    );
    expect(await run("edit", { path: "/w/a.txt", old_text: "", new_text: "4" })).toBe("error: old_text is empty");
  });

  test("save and rewind the sandbox", async () => {
    await run("write", { path: "/w/state", contents: "good" });
    const snapshot = await run("checkpoint", { label: "before" });
    await run("write", { path: "/w/state", contents: "bad" });
    expect(await run("rewind", { to: snapshot })).toBe("rewound");
    expect(await run("read", { path: "/w/state" })).toBe("good");
  });

  test.each([
    ["fly", {}, "there is no tool 'fly'"],
    ["exec", {}, "the input lacks command"],
    ["exec", { command: 5 }, "command must be of the type string"],
    ["exec", { command: "ls", shell: "zsh" }, "the input has an unknown field shell"],
    ["exec", { command: "ls", timeout_seconds: 1.5 }, "timeout_seconds must be of the type integer"],
    ["read", "text", "the input is not an object"],
    ["read", { path: "/missing" }, "there is no '/missing' in the sandbox"],
  ])("tell the model what is wrong: %s %j", async (name, input, expected) => {
    expect(await run(name, input)).toBe(`error: ${expected}`);
  });

  test("answer calls of Anthropic and OpenAI", async () => {
    const block = { type: "tool_use", id: "toolu_1", name: "exec", input: { command: "echo hi" } };
    expect(await toolbox.answerAnthropic(block)).toEqual({
      type: "tool_result",
      tool_use_id: "toolu_1",
      content: "hi\n[exit code 0]",
      is_error: false,
    });
    const call = (args: string) => ({ id: "call_1", function: { name: "exec", arguments: args } });
    expect(await toolbox.answerOpenAI(call('{"command":"echo hi"}'))).toEqual({
      role: "tool",
      tool_call_id: "call_1",
      content: "hi\n[exit code 0]",
    });
    expect((await toolbox.answerOpenAI(call("{"))).content).toBe("error: the input is not an object");
  });

  test("throw if they are aborted", async () => {
    const signal = AbortSignal.abort(new Error("enough"));
    await expect(toolbox.run("exec", { command: "true" }, { signal })).rejects.toThrow("enough");
  });
});

test("the AI SDK calls the tools", async () => {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  const toolCall = (id: string, toolName: string, input: object) => ({
    content: [{ type: "tool-call" as const, toolCallId: id, toolName, input: JSON.stringify(input) }],
    finishReason: { unified: "tool-calls" as const, raw: undefined },
    usage,
    warnings: [],
  });
  const script = [
    toolCall("1", "write", { path: "/ai/x.py", contents: "print(6 * 7)" }),
    toolCall("2", "exec", { command: "python3 /ai/x.py" }),
    toolCall("3", "read", { path: "/ai/missing" }),
    {
      content: [{ type: "text" as const, text: "done" }],
      finishReason: { unified: "stop" as const, raw: undefined },
      usage,
      warnings: [],
    },
  ];
  const model = new MockLanguageModelV3({ doGenerate: script });
  const { text, steps } = await generateText({
    model,
    prompt: "go",
    tools: sandboxTools(sandbox),
    stopWhen: stepCountIs(5),
  });
  expect(text).toBe("done");
  expect(steps.flatMap(({ toolResults }) => toolResults.map(({ output }) => output))).toEqual([
    "wrote /ai/x.py",
    "42\n[exit code 0]",
    "error: there is no '/ai/missing' in the sandbox",
  ]);
});
