import { readdirSync } from "node:fs";
import { join } from "node:path";

import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// `npm run dev` serves the page with the data of this server.
const server = process.env["TOPDECK_URL"] ?? "http://127.0.0.1:7717";

const PARTS = [
  "(BracketValue|CopyQuery|GettingStarted|IncompleteData|NoData|PeriodTimeline|RequestState",
  "ScrollX|SelectorHeatmap|SummaryTable|TimeRangePicker|UnitQuestion)",
].join("|");
const LIBS = "(alerts|audit|colour|comparison|rectangle|serverStatus|sources|stripes|timeMarks)";
const SHARED = new RegExp(`(parts/${PARTS}|lib/${LIBS})`);
const CHART_PARTS = "(ExportChart|LineChart|QueryResultView|SelectorInput|SeriesChart)";
const CHARTS = new RegExp(`(parts/${CHART_PARTS}|lib/(distributionDrawing|ruleReplay))`);
/** What Explore and Alerts open below their charts, such as the requests behind a selection. */
const PANEL_PARTS = [
  "(AlertDetail|ExemplarTable|ManageSeries|SelectionPanel|ShareBars|SpanDetails|SplitByLabel",
  "TraceShape|Waterfall)",
].join("|");
const PANELS = new RegExp(`(parts/${PANEL_PARTS}|lib/(exemplars|trace)|views/Trace)`);
/** Views that are opened least often, are small, and draw few charts. */
const VIEWS = /views\/(Checks|LossAudit|Sources|Status)/;

/** Classes of components are their numbers: hashes hardly compress. */
const COMPONENTS = readdirSync(join(import.meta.dirname, "src"), {
  recursive: true,
  encoding: "utf8",
})
  .filter((name) => name.endsWith(".svelte"))
  .sort();
const cssHash = ({ filename }: { filename: string }) =>
  `s${COMPONENTS.findIndex((name) => filename.endsWith(`/${name}`)).toString(36)}`;

export default defineConfig({
  // The page may be served below a path of a proxy.
  base: "./",
  plugins: [svelte({ compilerOptions: { cssHash } })],
  // The page's content security policy allows no inline data.
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    // One style sheet: two thirds of the bytes of one per script.
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    // Small files compress badly: what several views share is in two, with what it imports.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "parts", test: SHARED },
            { name: "charts", test: CHARTS },
            { name: "slos", test: /lib\/slos/ },
            { name: "panels", test: PANELS },
            { name: "views", test: VIEWS },
            // Together because they share much of their text.
            { name: "comparisons", test: /views\/(Compare|LoadRuns|Spectrum)/ },
          ],
        },
      },
    },
  },
  // Files share a process: one for each would load the same modules fifty times.
  // Timeouts are long because other processes may use the CPUs.
  test: { include: ["test/**/*.test.ts"], isolate: false, testTimeout: 60_000 },
  // The table of renamed metrics is the server's.
  server: { proxy: { "/v1": server, "/api": server }, fs: { allow: [".."] } },
});
