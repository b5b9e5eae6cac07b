/**
 * Generates `src/generated` from the OpenAPI document of the daemon.
 *
 * The SDK speaks TypeScript: names are in camel case, and durations are numbers of milliseconds whose names end
 * in `Ms`. The API has snake case and `*_secs`. Both follow from each other by rules, so that `src/wire.ts` can
 * convert without a table of names; this script refuses a document to which the rules do not apply.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { format } from "prettier";

import { camelCase, snakeCase } from "../src/names.js";

interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  enum?: string[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

interface Parameter {
  name: string;
  in: "path" | "query" | "header";
  description?: string;
  required?: boolean;
  schema: Schema;
}

type Content = Record<string, { schema?: Schema }>;

interface Operation {
  operationId: string;
  summary?: string;
  parameters?: Parameter[];
  requestBody?: { content: Content; required?: boolean };
  responses: Record<string, { content?: Content }>;
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

const HEAD = "// Generated from docs/reference/openapi.json by scripts/generate.ts; do not edit.\n";

/** Schemas that a class of the SDK stands for have another name. */
const NAMES: Record<string, string> = {
  Sandbox: "SandboxInfo",
  Process: "ProcessInfo",
  Port: "PortInfo",
  Ensured: "EnsuredInfo",
};
/** Schemas that the SDK has types of its own for. */
const OWN = new Set(["Text", "Binary", "OutputEvent", "CommandEvent"]);

/** Path of a file beside this script. */
function beside(path: string): string {
  return fileURLToPath(new URL(path, import.meta.url));
}

const DOCUMENT = beside("../../../docs/reference/openapi.json");

/** The generated files, by their paths. */
export async function generate(): Promise<Map<string, string>> {
  const document = JSON.parse(readFileSync(DOCUMENT, "utf8")) as Document;
  const generator = new Generator(document);
  return new Map([
    [beside("../src/generated/types.ts"), await formatted(generator.types())],
    [beside("../src/generated/operations.ts"), await formatted(generator.operations())],
  ]);
}

function formatted(text: string): Promise<string> {
  return format(text, { parser: "typescript", printWidth: 120 });
}

class Generator {
  readonly #schemas: Record<string, Schema>;
  readonly #operations: { id: string; method: string; path: string; operation: Operation }[];
  readonly #inRequests = new Set<string>();
  readonly #inResponses = new Set<string>();
  /** Nesting depth of the maps whose keys belong to the user, by their names in the API. */
  readonly #maps = new Map<string, number>();
  readonly #properties = new Set<string>();

  constructor(document: Document) {
    this.#schemas = document.components.schemas;
    this.#operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({
        id: operation.operationId,
        method: method.toUpperCase(),
        path,
        operation,
      })),
    );
    for (const { operation } of this.#operations) {
      for (const { schema } of Object.values(operation.requestBody?.content ?? {}))
        this.#reach(schema, this.#inRequests);
      for (const { content } of Object.values(operation.responses)) {
        for (const { schema } of Object.values(content ?? {})) this.#reach(schema, this.#inResponses);
      }
      for (const parameter of operation.parameters ?? []) {
        if (parameter.in === "query") this.#check(parameter.name);
      }
    }
    for (const schema of Object.values(this.#schemas)) this.#inspect(schema);
  }

  types(): string {
    const names = Object.keys(this.#schemas).filter((name) => !OWN.has(name));
    const text =
      "/** Bytes for a sandbox, such as a path: a string, or bytes that need not be UTF-8. */\n" +
      "export type Text = string | Uint8Array;\n";
    return [HEAD, text, ...names.map((name) => this.#declaration(name, this.#schemas[name]!))].join("\n");
  }

  operations(): string {
    const imports = new Set<string>();
    const types: string[] = [];
    const routes: string[] = [];
    for (const { id, method, path, operation } of this.#operations) {
      const parameters = (operation.parameters ?? []).filter((parameter) => parameter.in !== "header");
      const headers = new Set((operation.parameters ?? []).filter((it) => it.in === "header").map((it) => it.name));
      const params = parameters.map((parameter) => {
        const optional = parameter.required === true ? "" : "?";
        const type = this.#type(parameter.schema, "request", imports);
        return `${camelCase(parameter.name)}${optional}: ${type}${optional && " | undefined"}`;
      });
      const [kind, bodySchema] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
      const json = kind === "application/json";
      const bodyType =
        kind === undefined ? "undefined" : json ? this.#type(bodySchema?.schema ?? {}, "request", imports) : "BodyInit";
      const optionalBody = kind !== undefined && operation.requestBody?.required !== true ? " | undefined" : "";
      const success = Object.entries(operation.responses).filter(([status]) => /^2/.test(status));
      const result = success
        .map(([, response]) => response.content?.["application/json"]?.schema)
        .find((it) => it !== undefined);
      const resultType = result === undefined ? "undefined" : this.#type(result, "response", imports);
      types.push(
        `  /** ${operation.summary ?? id}: \`${method} ${path}\`. */`,
        `  ${id}: { params: ${params.length === 0 ? "object" : `{ ${params.join("; ")} }`}; ` +
          `body: ${bodyType}${optionalBody}; result: ${resultType} };`,
      );
      const flags = [
        `method: "${method}"`,
        `path: "${path}"`,
        ...(kind === undefined ? [] : [`body: "${kind}"`]),
        ...(headers.has("Idempotency-Key") ? ["idempotent: true"] : []),
      ];
      routes.push(`  ${id}: { ${flags.join(", ")} },`);
    }
    const maps = [...this.#maps].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, depth]) => `  ${name}: ${depth},`);
    return [
      HEAD,
      `import type {\n${[...imports]
        .sort()
        .map((name) => `  ${name},\n`)
        .join("")}} from "./types.js";\n`,
      "/** Parameters, body and result of every operation. */",
      "export interface Operations {",
      ...types,
      "}\n",
      "/** Method and path of every operation. */",
      "export const routes = {",
      ...routes,
      "} as const;\n",
      "/** Maps whose keys belong to the user, with the number of levels of such keys. */",
      "export const maps: Readonly<Record<string, number>> = {",
      ...maps,
      "};\n",
    ].join("\n");
  }

  #reach(schema: Schema | undefined, reached: Set<string>): void {
    if (schema === undefined) return;
    const name = referenced(schema);
    if (name !== undefined) {
      if (reached.has(name)) return;
      reached.add(name);
      this.#reach(this.#schemas[name], reached);
    }
    for (const child of children(schema)) this.#reach(child, reached);
  }

  #inspect(schema: Schema): void {
    for (const [name, property] of Object.entries(schema.properties ?? {})) {
      this.#check(name);
      this.#properties.add(name);
      const depth = mapDepth(property);
      if (depth > 0) this.#maps.set(name, Math.max(depth, this.#maps.get(name) ?? 0));
    }
    for (const child of children(schema)) this.#inspect(child);
  }

  #check(name: string): void {
    // `took_ms` is only ever read.
    if (snakeCase(camelCase(name)) !== name && name !== "took_ms") {
      throw new Error(`the rules of names do not apply to '${name}'`);
    }
  }

  #declaration(name: string, schema: Schema): string {
    const doc = comment(this.#prose(schema.description), "");
    const typeName = NAMES[name] ?? name;
    if (schema.allOf === undefined && schema.properties !== undefined) {
      const raw = this.#inResponses.has(name);
      return `${doc}export interface ${typeName} {\n${this.#members(schema, this.#direction(name), "  ", raw)}}\n`;
    }
    return `${doc}export type ${typeName} = ${this.#type(schema, this.#direction(name))};\n`;
  }

  #direction(name: string): "request" | "response" {
    return this.#inRequests.has(name) ? "request" : "response";
  }

  #members(schema: Schema, direction: "request" | "response", indent: string, raw = false): string {
    const required = new Set(schema.required);
    return Object.entries(schema.properties ?? {})
      .map(([name, property]) => {
        const optional = required.has(name) ? "" : "?";
        const type = this.#type(property, direction);
        const undefinable = optional && direction === "request" ? " | undefined" : "";
        const doc = comment(this.#describe(name, property), indent);
        const member = `${doc}${indent}${camelCase(name)}${optional}: ${type}${undefinable};\n`;
        return raw && isText(property) ? member + rawMember(name, indent) : member;
      })
      .join("");
  }

  #type(schema: Schema, direction: "request" | "response", imports?: Set<string>): string {
    const name = referenced(schema);
    if (name === "Text") {
      if (direction === "response") return "string";
      imports?.add("Text");
      return "Text";
    }
    if (name !== undefined) {
      const typeName = NAMES[name] ?? name;
      imports?.add(typeName);
      return typeName;
    }
    const union = (parts: string[], by: string): string => [...new Set(parts)].join(by);
    if (schema.oneOf)
      return union(
        schema.oneOf.map((it) => this.#type(it, direction, imports)),
        " | ",
      );
    if (schema.allOf)
      return union(
        schema.allOf.map((it) => this.#type(it, direction, imports)),
        " & ",
      );
    if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
    const types = [schema.type ?? "unknown"].flat();
    return union(
      types.map((type) => this.#basic(type, schema, direction, imports)),
      " | ",
    );
  }

  #basic(type: string, schema: Schema, direction: "request" | "response", imports?: Set<string>): string {
    switch (type) {
      case "integer":
        return "number";
      case "array": {
        const items = this.#type(schema.items ?? {}, direction, imports);
        return items.includes(" ") ? `(${items})[]` : `${items}[]`;
      }
      case "object": {
        if (schema.properties) return `{\n${this.#members(schema, direction, "      ")}    }`;
        const values = schema.additionalProperties;
        if (typeof values === "object") return `Record<string, ${this.#type(values, direction, imports)}>`;
        return values === false ? "Record<string, never>" : "Record<string, unknown>";
      }
      default:
        return type;
    }
  }

  /** The description of a property, with the names and units of the SDK. */
  #describe(name: string, property: Schema): string {
    const nested = property.oneOf?.find((it) => it.description !== undefined && it.$ref !== undefined);
    const text = this.#prose(property.description ?? nested?.description);
    return name.endsWith("_secs") ? inMilliseconds(text) : text;
  }

  #prose(text = ""): string {
    return text.replace(/`([a-z]+(?:_[a-z]+)+)`/g, (whole, name: string) =>
      this.#properties.has(name) ? `\`${camelCase(name)}\`` : whole,
    );
  }
}

function referenced(schema: Schema): string | undefined {
  return schema.$ref?.split("/").at(-1);
}

function children(schema: Schema): Schema[] {
  const values = typeof schema.additionalProperties === "object" ? [schema.additionalProperties] : [];
  const items = schema.items ? [schema.items] : [];
  return [
    ...Object.values(schema.properties ?? {}),
    ...values,
    ...items,
    ...(schema.oneOf ?? []),
    ...(schema.allOf ?? []),
  ];
}

function mapDepth(schema: Schema): number {
  const values = schema.additionalProperties;
  return typeof values === "object" ? 1 + mapDepth(values) : 0;
}

function isText(schema: Schema): boolean {
  return [schema, ...(schema.oneOf ?? [])].some((it) => referenced(it) === "Text");
}

function rawMember(name: string, indent: string): string {
  const camel = camelCase(name);
  return `${indent}/** The bytes of \`${camel}\`, set only if they are not valid UTF-8. */\n${indent}${camel}Bytes?: Uint8Array;\n`;
}

function inMilliseconds(text: string): string {
  const scaled = text
    .replace(/\b(s|S)econds\b/g, (_, s: string) => (s === "S" ? "Milliseconds" : "milliseconds"))
    .replace(/\d+(?:,\d{3})*(?:\.\d+)?(?! days)/g, (number) =>
      (Number(number.replaceAll(",", "")) * 1000).toLocaleString("en-US"),
    );
  return /milliseconds/i.test(scaled) ? scaled : `${scaled} In milliseconds.`;
}

function comment(text: string, indent: string): string {
  if (text === "") return "";
  const lines = text.split("\n");
  if (lines.length === 1) return `${indent}/** ${text} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}`.trimEnd() + "\n").join("")}${indent} */\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [path, text] of await generate()) writeFileSync(path, text);
}
