/**
 * Tools for the Vercel AI SDK. Needs the package `ai`.
 *
 * ```ts
 * const { text } = await generateText({ model, prompt, tools: sandboxTools(sandbox), stopWhen: stepCountIs(20) });
 * ```
 */

import { jsonSchema, type Tool, tool } from "ai";

import type { Sandbox } from "./sandbox.js";
import { Toolbox, type ToolboxOptions } from "./tools/index.js";

/** Returns the tools with which a model works in a sandbox. An error is text for the model. */
export function sandboxTools(sandbox: Sandbox, options: ToolboxOptions = {}): Record<string, Tool<unknown, string>> {
  const toolbox = new Toolbox(sandbox, options);
  const tools = toolbox.definitions.map(({ name, description, schema }) => {
    const inputSchema = jsonSchema<unknown>({ ...schema });
    const execute = async (input: unknown, { abortSignal }: { abortSignal?: AbortSignal }): Promise<string> => {
      const { text, isError } = await toolbox.run(name, input, { signal: abortSignal });
      return isError ? `error: ${text}` : text;
    };
    return [name, tool({ description, inputSchema, execute })] as const;
  });
  return Object.fromEntries(tools);
}
