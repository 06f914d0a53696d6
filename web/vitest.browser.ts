import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// One file at a time: the tests of the host look at all servers that run on it, those of other files
// among them. Deadlines are long, because other work may run beside them.
export default defineConfig({
  plugins: [svelte()],
  test: {
    include: ["browser/**/*.test.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
