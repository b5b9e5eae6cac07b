/**
 * Conversion between the JSON of the API and the objects of the SDK.
 *
 * | in the API | in the SDK |
 * |---|---|
 * | `idle_timeout_secs: 1.5` | `idleTimeoutMs: 1500` |
 * | `path: {"base64": "…"}`, not UTF-8 | `path: "…\ufffd…"` and `pathBytes: Uint8Array` |
 * | keys of `env`, `labels` and other maps | unchanged |
 */

import { fromBase64, toBase64, toText } from "./bytes.js";
import { maps } from "./generated/operations.js";
import { camelCase, snakeCase } from "./names.js";

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null;

/** Converts the body of a request. Fields that are undefined are left out. */
export function toWire(value: unknown, userKeys = 0): unknown {
  if (value instanceof Uint8Array) return { base64: toBase64(value) };
  if (Array.isArray(value)) return value.map((item) => toWire(item));
  if (!isObject(value)) return value;
  const wire: Json = {};
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue;
    if (userKeys > 0) {
      wire[key] = toWire(item, userKeys - 1);
    } else {
      const name = snakeCase(key);
      wire[name] = typeof item === "number" && name.endsWith("_secs") ? item / 1000 : toWire(item, maps[name]);
    }
  }
  return wire;
}

/** Converts the parameters of a query to pairs, a list to one pair for each item. */
export function toQuery(parameters: Json): [string, string][] {
  return Object.entries(toWire(parameters) as Json).flatMap(([name, value]) =>
    [value].flat().map((item): [string, string] => [name, String(item)]),
  );
}

/** Converts the body of a response. */
export function fromWire(value: unknown, userKeys = 0): unknown {
  if (Array.isArray(value))
    return value.map((item) => (isEncoded(item) ? toText(fromBase64(item.base64)) : fromWire(item)));
  if (!isObject(value)) return value;
  const converted: Json = {};
  for (const [name, item] of Object.entries(value)) {
    if (userKeys > 0) {
      converted[name] = fromWire(item, userKeys - 1);
      continue;
    }
    const key = camelCase(name);
    if (isEncoded(item)) {
      const bytes = fromBase64(item.base64);
      converted[key] = toText(bytes);
      converted[`${key}Bytes`] = bytes;
    } else if (typeof item === "number" && name.endsWith("_secs")) {
      converted[key] = milliseconds(item);
    } else {
      converted[key] = fromWire(item, maps[name]);
    }
  }
  return converted;
}

/** Converts seconds, without the error of binary fractions below a microsecond. */
function milliseconds(seconds: number): number {
  return Math.round(seconds * 1e6) / 1e3;
}

function isEncoded(value: unknown): value is { base64: string } {
  return isObject(value) && typeof value["base64"] === "string" && Object.keys(value).length === 1;
}
