/** The rules by which names of the SDK and names of the API follow from each other. */

/** The name in the SDK of a field of the API: `idle_timeout_secs` becomes `idleTimeoutMs`. */
export function camelCase(name: string): string {
  return name.replace(/_secs$/, "_ms").replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

/** The name in the API of a field of the SDK: `idleTimeoutMs` becomes `idle_timeout_secs`. */
export function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`).replace(/_ms$/, "_secs");
}
