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
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
