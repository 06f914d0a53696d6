import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// One file at a time: tests of the host see all servers on it, also those of other files. Timeouts
// are long because other processes may use the CPUs.
export default defineConfig({
  plugins: [svelte()],
  test: {
    include: ["browser/**/*.test.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    fileParallelism: false,
    expect: { poll: { timeout: 10_000 } },
  },
});
