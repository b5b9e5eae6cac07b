/** Names of the provider and of its sandboxes. */

/** The name of the provider. It is part of the key of every sandbox, so it never changes. */
export const PROVIDER = "dormouse";

/** A name for a fork. */
export function forkName(): string {
  return `${PROVIDER}-fork-${crypto.randomUUID().slice(0, 8)}`;
}
