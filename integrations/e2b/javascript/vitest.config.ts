import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  // The package of the client that the cases use.
  resolve: { alias: { client: process.env["E2B_CLIENT"] ?? "e2b" } },
  test: {
    include: ["cases/**/*.test.ts"],
    setupFiles: ["support/setup.ts"],
    reporters: ["default", fileURLToPath(new URL("support/counting.ts", import.meta.url))],
    maxWorkers: 2,
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});
