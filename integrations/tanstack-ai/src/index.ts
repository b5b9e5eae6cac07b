/** Dormouse as a provider of sandboxes for TanStack AI. Start with {@link dormouseSandbox}. */

export type { DormouseHandle } from "./handle.js";
export { type DormouseProvider, dormouseSandbox, type DormouseSandboxOptions } from "./provider.js";
