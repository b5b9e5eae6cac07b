import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: {
    alias: { "@dormouse/sdk": fileURLToPath(new URL("../../sdk/typescript/src/index.ts", import.meta.url)) },
  },
  test: {
    include: ["test/**/*.test.ts"],
    maxWorkers: 2,
    // Against hangs alone: a host that runs all suites at once may be ten times slower.
    testTimeout: 600_000,
    hookTimeout: 600_000,
  },
});
