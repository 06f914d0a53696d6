import { defineConfig } from "vitest/config";

// Figures for docs/benchmarks.md: `npm --prefix web run bench`.
export default defineConfig({
  test: {
    include: ["browser/**/*.bench.ts"],
    testTimeout: 1_200_000,
    hookTimeout: 120_000,
    fileParallelism: false,
  },
});
