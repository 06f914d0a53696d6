import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// Tests with a browser and a server take their time, and share both.
export default defineConfig({
  plugins: [svelte()],
  test: {
    include: ["browser/**/*.test.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
