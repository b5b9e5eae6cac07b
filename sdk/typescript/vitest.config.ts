import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  resolve: {
    alias: [
      { find: /^@dormouse\/sdk$/, replacement: source("./src/index.ts") },
      { find: /^@dormouse\/sdk\/tools$/, replacement: source("./src/tools/index.ts") },
      { find: /^@dormouse\/sdk\/(\w+)$/, replacement: source("./src/$1.ts") },
    ],
  },
  test: {
    include: ["test/**/*.test.ts"],
    maxWorkers: 2,
    // Against hangs alone: a host that runs all suites at once may be ten times slower.
    testTimeout: 600_000,
    hookTimeout: 600_000,
  },
});
