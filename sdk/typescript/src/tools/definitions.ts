/** What a model is told about the tools. */

/** Name of a tool. */
export type ToolName = "exec" | "read" | "write" | "edit" | "checkpoint" | "rewind";

/** JSON Schema of the input of a tool. */
export interface InputSchema {
  type: "object";
  properties: Record<string, { type: "string" | "integer" | "boolean"; description: string }>;
  required: string[];
  additionalProperties: false;
}

/** A tool as a model sees it. */
export interface ToolDefinition {
  name: ToolName;
  description: string;
  schema: InputSchema;
}

function define(
  name: ToolName,
  description: string,
  properties: InputSchema["properties"],
  required: string[],
): ToolDefinition {
  return { name, description, schema: { type: "object", properties, required, additionalProperties: false } };
}

const PATH = { type: "string", description: "Absolute path in the sandbox." } as const;

/** All tools. */
export const TOOLS: readonly ToolDefinition[] = [
  define(
    "exec",
    "Run a command line with sh in the sandbox and wait for its end. Returns its output and its exit code. " +
      "Start programs that keep running with '&' and send their output to a file.",
    {
      command: { type: "string", description: "The command line." },
      cwd: { type: "string", description: "Working directory." },
      timeout_seconds: { type: "integer", description: "Seconds after which the command is killed." },
    },
    ["command"],
  ),
  define(
    "read",
    "Read a text file of the sandbox. Returns its lines.",
    {
      path: PATH,
      first_line: { type: "integer", description: "The first line to return. Default 1." },
      line_count: { type: "integer", description: "How many lines to return. Default: all." },
    },
    ["path"],
  ),
  define(
    "write",
    "Write a text file in the sandbox, with missing directories. Replaces an existing file.",
    { path: PATH, contents: { type: "string", description: "The whole contents." } },
    ["path", "contents"],
  ),
  define(
    "edit",
    "Replace a text in a file of the sandbox. The text must occur exactly once, unless replace_all is set.",
    {
      path: PATH,
      old_text: { type: "string", description: "The text to replace, exactly as in the file." },
      new_text: { type: "string", description: "The text that replaces it." },
      replace_all: { type: "boolean", description: "Replace every occurrence. Default: false." },
    },
    ["path", "old_text", "new_text"],
  ),
  define(
    "checkpoint",
    "Save the files of the sandbox as a snapshot, and return its id. Do this before a risky change.",
    { label: { type: "string", description: "What the snapshot is for." } },
    [],
  ),
  define(
    "rewind",
    "Return the sandbox to a snapshot. All later changes of files are undone, and processes end.",
    { to: { type: "string", description: "Id of the snapshot, as checkpoint has returned it." } },
    ["to"],
  ),
];
