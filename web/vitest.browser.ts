import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// Each file has a server and a browser of its own, and waits for them most of the time: two files
// run at once, also on two processors. Deadlines are long, because other work may run beside them.
export default defineConfig({
  plugins: [svelte()],
  test: {
    include: ["browser/**/*.test.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
  },
});
