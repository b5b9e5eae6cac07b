/**
 * Tools with which a model works in a sandbox, in the formats of Anthropic and OpenAI:
 *
 * ```ts
 * const toolbox = new Toolbox(sandbox);
 * const message = await anthropic.messages.create({ tools: toolbox.anthropic, … });
 * ```
 */

import { DormouseError, TransportError } from "../errors.js";
import type { Sandbox } from "../sandbox.js";
import type { CallOptions } from "../transport.js";
import { type InputSchema, type ToolDefinition, type ToolName, TOOLS } from "./definitions.js";

export { type InputSchema, type ToolDefinition, type ToolName, TOOLS } from "./definitions.js";

/** Options of a {@link Toolbox}. */
export interface ToolboxOptions {
  /** The tools to offer. Default: all. */
  tools?: readonly ToolName[] | undefined;
  /** Longest text of a result in characters. The middle of a longer one is left out. Default 30,000. */
  maxChars?: number | undefined;
  /** Time limit of a command that names none, in milliseconds. Default 120,000. */
  timeoutMs?: number | undefined;
  /** Working directory of commands. Default: that of the image. */
  cwd?: string | undefined;
}

/** The result of a tool call. */
export interface ToolResult {
  /** What the model is told. */
  text: string;
  /** Whether the call failed. A command with another exit code than 0 has not failed. */
  isError: boolean;
}

/** A tool in the format of Anthropic. */
export interface AnthropicTool {
  name: ToolName;
  description: string;
  input_schema: InputSchema;
}

/** A tool in the format of OpenAI. */
export interface OpenAITool {
  type: "function";
  function: { name: ToolName; description: string; parameters: InputSchema };
}

type Input = Record<string, unknown>;

const MAX_CHARS = 30_000;
const TIMEOUT_MS = 120_000;

/** The tools for one sandbox. */
export class Toolbox {
  /** The sandbox. */
  readonly sandbox: Sandbox;
  /** The tools that are offered. */
  readonly definitions: readonly ToolDefinition[];
  readonly #options: ToolboxOptions;

  constructor(sandbox: Sandbox, options: ToolboxOptions = {}) {
    this.sandbox = sandbox;
    this.#options = options;
    this.definitions = TOOLS.filter(({ name }) => options.tools?.includes(name) ?? true);
  }

  /** The tools in the format of Anthropic: `tools` of a message. */
  get anthropic(): AnthropicTool[] {
    return this.definitions.map(({ name, description, schema }) => ({ name, description, input_schema: schema }));
  }

  /** The tools in the format of OpenAI: `tools` of a chat completion. */
  get openai(): OpenAITool[] {
    return this.definitions.map(({ name, description, schema }) => ({
      type: "function",
      function: { name, description, parameters: schema },
    }));
  }

  /**
   * Runs a tool. Errors that the model can act on, such as a file that does not exist, are results. A lost connection
   * and an aborted call throw.
   */
  async run(name: string, input: unknown, options: CallOptions = {}): Promise<ToolResult> {
    try {
      const tool = this.definitions.find((it) => it.name === name);
      if (tool === undefined) throw new DormouseError(`there is no tool '${name}'`);
      const text = await this.#run(tool.name, check(tool.schema, input), options);
      return { text: shorten(text, this.#options.maxChars ?? MAX_CHARS), isError: false };
    } catch (error) {
      if (!(error instanceof DormouseError) || error instanceof TransportError) throw error;
      const { nextStep } = error as { nextStep?: string };
      return { text: nextStep ? `${error.message} (${nextStep})` : error.message, isError: true };
    }
  }

  /** Runs a `tool_use` block of Anthropic, and returns the `tool_result` block for it. */
  async answerAnthropic(
    block: { id: string; name: string; input: unknown },
    options: CallOptions = {},
  ): Promise<{ type: "tool_result"; tool_use_id: string; content: string; is_error: boolean }> {
    const { text, isError } = await this.run(block.name, block.input, options);
    return { type: "tool_result", tool_use_id: block.id, content: text, is_error: isError };
  }

  /** Runs a tool call of OpenAI, and returns the message for it. */
  async answerOpenAI(
    call: { id: string; function: { name: string; arguments: string } },
    options: CallOptions = {},
  ): Promise<{ role: "tool"; tool_call_id: string; content: string }> {
    const { text, isError } = await this.run(call.function.name, parse(call.function.arguments), options);
    return { role: "tool", tool_call_id: call.id, content: isError ? `error: ${text}` : text };
  }

  async #run(name: ToolName, input: Input, call: CallOptions): Promise<string> {
    switch (name) {
      case "exec":
        return await this.#exec(input as { command: string; cwd?: string; timeout_seconds?: number }, call);
      case "read":
        return await this.#read(input as { path: string; first_line?: number; line_count?: number }, call);
      case "write": {
        const { path, contents } = input as { path: string; contents: string };
        await this.sandbox.files.write(path, contents, call);
        return `wrote ${path}`;
      }
      case "edit":
        return await this.#edit(
          input as { path: string; old_text: string; new_text: string; replace_all?: boolean },
          call,
        );
      case "checkpoint": {
        const labels = input["label"] === undefined ? {} : { label: String(input["label"]) };
        return (await this.sandbox.checkpoint({ labels, ...call })).id;
      }
      case "rewind":
        await this.sandbox.rewind(String(input["to"]), call);
        return "rewound";
    }
  }

  async #exec(input: { command: string; cwd?: string; timeout_seconds?: number }, call: CallOptions): Promise<string> {
    const { timeoutMs = TIMEOUT_MS } = this.#options;
    const limitMs = input.timeout_seconds === undefined ? timeoutMs : input.timeout_seconds * 1000;
    const cwd = input.cwd ?? this.#options.cwd;
    const result = await this.sandbox.exec(input.command, { cwd, timeoutMs: limitMs, ...call });
    const end = result.timedOut
      ? `killed after ${limitMs / 1000} s`
      : result.signal === null
        ? `exit code ${result.exitCode}`
        : `ended by signal ${result.signal}`;
    const output = [result.stdout, result.stderr].filter((text) => text !== "").map((text) => text.replace(/\n$/, ""));
    return [...output, `[${end}]`].join("\n");
  }

  async #read(input: { path: string; first_line?: number; line_count?: number }, call: CallOptions): Promise<string> {
    const text = await this.sandbox.files.readText(input.path, call);
    if (input.first_line === undefined && input.line_count === undefined) return text;
    const first = Math.max(input.first_line ?? 1, 1) - 1;
    const lines = text.split("\n");
    return lines.slice(first, input.line_count === undefined ? undefined : first + input.line_count).join("\n");
  }

  async #edit(
    input: { path: string; old_text: string; new_text: string; replace_all?: boolean },
    call: CallOptions,
  ): Promise<string> {
    if (input.old_text === "") throw new DormouseError("old_text is empty");
    const parts = (await this.sandbox.files.readText(input.path, call)).split(input.old_text);
    const count = parts.length - 1;
    if (count === 0) throw new DormouseError(`old_text does not occur in ${input.path}`);
    if (count > 1 && !input.replace_all) {
      throw new DormouseError(
        `old_text occurs ${count} times in ${input.path}: add text around it, or set replace_all`,
      );
    }
    await this.sandbox.files.write(input.path, parts.join(input.new_text), call);
    return `replaced ${count} ${count === 1 ? "occurrence" : "occurrences"} in ${input.path}`;
  }
}

/** Checks the input of a tool against its schema. */
function check(schema: InputSchema, input: unknown): Input {
  if (typeof input !== "object" || input === null) throw new DormouseError("the input is not an object");
  const fields = input as Input;
  const missing = schema.required.filter((name) => fields[name] === undefined);
  if (missing.length > 0) throw new DormouseError(`the input lacks ${missing.join(", ")}`);
  for (const [name, value] of Object.entries(fields)) {
    const type = schema.properties[name]?.type;
    if (type === undefined) throw new DormouseError(`the input has an unknown field ${name}`);
    const isRight = type === "integer" ? Number.isInteger(value) : typeof value === type;
    if (!isRight) throw new DormouseError(`${name} must be of the type ${type}`);
  }
  return fields;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Leaves out the middle of a text that is too long. */
function shorten(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const half = Math.floor(maxChars / 2);
  return `${text.slice(0, half)}\n[… ${text.length - 2 * half} characters left out …]\n${text.slice(-half)}`;
}
