import { afterAll } from "vitest";
import { write } from "./recording.ts";

for (const name of ["E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"]) {
  if (process.env[name] === undefined) throw new Error(`set ${name} to that of a server with the template 'base'`);
}

afterAll(write);
