import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// `npm run dev` serves the page with the data of this server.
const server = process.env["TOPDECK_URL"] ?? "http://127.0.0.1:7717";

export default defineConfig({
  // The page may be served below a path of a proxy.
  base: "./",
  plugins: [svelte()],
  // The page's content security policy allows no inline data.
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    // Files of a few hundred bytes compress badly: these are one, with what they import.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            {
              name: "parts",
              test: /parts\/(ScrollX|BracketValue|CopyQuery|IncompleteData|NoData)/,
            },
          ],
        },
      },
    },
  },
  test: { include: ["test/**/*.test.ts"] },
  // The table of renamed metrics is the server's.
  server: { proxy: { "/v1": server, "/api": server }, fs: { allow: [".."] } },
});
