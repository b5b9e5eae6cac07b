/**
 * Records which methods and options the cases use, by wrapping the classes of a package in place.
 *
 * Only calls of the cases count: what a method of a package calls in turn is not recorded. For each
 * call, the record has the keys of its arguments, and how it ended. `check-surface.ts` compares that
 * with the types of the package.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export type Use = { ok: number; errors: string[] };

const ERRORS_MAX = 20;
const DEPTH_MAX = 6;

const inside = new AsyncLocalStorage<boolean>();
const uses = new Map<string, Use>();
const wrapped = new WeakSet<object>();

/** Classes whose objects are only had from calls, and are wrapped when the first one is returned. */
const RETURNED = new Set([
  "CommandHandle",
  "WatchHandle",
  "SandboxPaginator",
  "SnapshotPaginator",
  "SecretPaginator",
  "Execution",
]);

/** Returns the paths of all keys in a value. */
function paths(value: unknown, at: string, depth = 0): string[] {
  if (value === undefined) return [];
  const found = [at];
  if (depth > DEPTH_MAX || typeof value !== "object" || value === null) return found;
  if (value instanceof Map) {
    for (const item of value.values()) found.push(...paths(item, `${at}.*`, depth + 1));
  } else if (Array.isArray(value)) {
    for (const item of value) found.push(...paths(item, `${at}.*`, depth + 1));
  } else if (Object.getPrototypeOf(value) === Object.prototype) {
    for (const [key, item] of Object.entries(value)) found.push(...paths(item, `${at}.${key}`, depth + 1));
  }
  return found;
}

function add(name: string, args: unknown[], error?: unknown): void {
  const names = [name, ...args.flatMap((value, index) => paths(value, `${name}#${index}`))];
  for (const one of names) {
    const use = uses.get(one) ?? { ok: 0, errors: [] };
    uses.set(one, use);
    if (error === undefined) use.ok += 1;
    else if (use.errors.length < ERRORS_MAX) use.errors.push(String(error));
  }
}

/** Returns a function that records its calls. */
export function recorded<F extends (...args: any[]) => any>(name: string, call: F): F {
  const record = function (this: unknown, ...args: unknown[]): unknown {
    if (inside.getStore() === true) return call.apply(this, args);
    return inside.run(true, () => {
      try {
        const result = call.apply(this, args) as unknown;
        if (!(result instanceof Promise)) return ended(result);
        return result.then(ended, (error: unknown) => {
          add(name, args, error);
          throw error;
        });
      } catch (error) {
        add(name, args, error);
        throw error;
      }
    });
    function ended(result: unknown): unknown {
      add(name, args);
      watch(result);
      return result;
    }
  };
  return record as F;
}

/** Wraps the class of a returned object. */
function watch(result: unknown): void {
  if (typeof result !== "object" || result === null) return;
  const prototype: object = Object.getPrototypeOf(result);
  const name = prototype?.constructor?.name.replace(/\$\d+$/, "");
  if (RETURNED.has(name)) wrapPrototype(name, prototype);
  const results: unknown = name === "Execution" ? (result as { results: unknown }).results : [];
  if (Array.isArray(results) && results.length > 0) wrapPrototype("Result", Object.getPrototypeOf(results[0]));
}

/** Wraps the methods of a class, also inherited ones. */
export function wrapClass(name: string, owner: any): void {
  if (wrapped.has(owner)) return;
  wrapped.add(owner);
  const seen = new Set(["constructor"]);
  for (let of = owner; typeof of === "function" && of !== Function.prototype; of = Object.getPrototypeOf(of)) {
    for (const key of Object.getOwnPropertyNames(of)) {
      const value = Object.getOwnPropertyDescriptor(of, key)?.value as unknown;
      if (seen.has(key) || typeof value !== "function") continue;
      seen.add(key);
      define(owner, key, recorded(`${name}.${key}[class]`, value as (...args: unknown[]) => unknown));
    }
  }
  wrapPrototype(name, owner.prototype);
}

/** Wraps the methods of the objects of a class. */
export function wrapPrototype(name: string, prototype: any): void {
  if (wrapped.has(prototype)) return;
  wrapped.add(prototype);
  const seen = new Set(["constructor"]);
  for (let of = prototype; of !== null && of !== Object.prototype; of = Object.getPrototypeOf(of)) {
    for (const key of Object.getOwnPropertyNames(of)) {
      const descriptor = Object.getOwnPropertyDescriptor(of, key);
      if (seen.has(key) || descriptor === undefined) continue;
      seen.add(key);
      if (typeof descriptor.value === "function") define(prototype, key, recorded(`${name}.${key}`, descriptor.value));
      else if (descriptor.get !== undefined) {
        const get = recorded(`${name}.${key}`, descriptor.get);
        Object.defineProperty(prototype, key, { ...descriptor, get, configurable: true });
      }
    }
  }
}

function define(of: object, key: string, value: unknown): void {
  Object.defineProperty(of, key, { value, writable: true, configurable: true, enumerable: false });
}

/** Writes the record of this process. */
export function write(): void {
  const directory = process.env["E2B_RECORDS"];
  if (directory === undefined) return;
  mkdirSync(directory, { recursive: true });
  const path = join(directory, `${process.pid}-${Math.random().toString(36).slice(2)}.json`);
  writeFileSync(path, JSON.stringify(Object.fromEntries(uses), null, 1));
}
