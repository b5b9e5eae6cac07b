/** Environments of the daemon, in each of which an id of the layer has its sandbox. */

import { type Dormouse, type Environment, GoneError, NotFoundError, type Sandbox } from "@dormouse/sdk";

/** Label of a sandbox that names its environment. */
const LABEL = "dorm.environment";

/** The environment that a sandbox is the present one of. None for a fork, and for one that was retired. */
export async function environmentOf(dormouse: Dormouse, { id, info }: Sandbox): Promise<Environment | undefined> {
  const name = info.labels[LABEL];
  const environment = name && (await unlessGone(dormouse.environments.get(name)));
  return environment && environment.sandbox === id ? environment : undefined;
}

/**
 * Terminates a sandbox, with its environment if nothing else is in that: a retired sandbox is kept for its time, and what
 * another caller is making is left alone. It is no error if the sandbox is gone.
 */
export async function destroy(dormouse: Dormouse, sandbox: Sandbox): Promise<void> {
  const environment = await environmentOf(dormouse, sandbox);
  if (environment?.state === "ready" && environment.retired.length === 0) {
    await unlessGone(dormouse.environments.remove(environment.id));
  }
  await unlessGone(sandbox.terminate());
}

/** The result of a call, or undefined if what it is for is gone. Every other failure is thrown. */
export async function unlessGone<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof NotFoundError || error instanceof GoneError) return undefined;
    throw error;
  }
}
