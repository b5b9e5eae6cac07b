/** Names of the provider and of its sandboxes. */

/** The name of the provider. It is part of the key of every sandbox, so it never changes. */
export const PROVIDER = "dormouse";

/** The name of the sandbox for an id of the layer. It is unique among the living sandboxes of a project. */
export function sandboxName(prefix: string, id: string): string {
  const name = `${prefix}-${id}`;
  if (!/^[a-z][a-z0-9-]{0,61}[a-z0-9]$/.test(name)) throw new TypeError(`'${name}' cannot be the name of a sandbox`);
  return name;
}

/** A name for the successor or the predecessor of a sandbox. */
export function relatedName(name: string, relation: string): string {
  return `${name.slice(0, 62 - relation.length - 9)}-${relation}-${crypto.randomUUID().slice(0, 8)}`;
}
