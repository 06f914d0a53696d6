import { expect, test } from "vitest";

import type { Heatmap } from "../src/lib/api";
import { toSvg } from "../src/lib/chartDrawing";
import { Distribution, exact } from "../src/lib/distribution";
import { heatmapCsv, heatmapDrawing } from "../src/lib/heatmapDrawing";

const cell = (lower: number, upper: number, count: number) => ({ lower, upper, count });
const column = (start: number, ...cells: ReturnType<typeof cell>[]) => ({
  start,
  end: start + 60e3,
  distribution: new Distribution(cells, exact(50)),
  gaps: [],
});
const columns = [
  column(0, cell(1, 10, 3), cell(10, 100, 1)),
  column(60e3),
  column(120e3, cell(10, Infinity, 900)),
];
const HEATMAP: Heatmap = {
  selector: "latency",
  series: 1,
  unit: "ms",
  start: 0,
  end: 180e3,
  step: 60e3,
  total: Distribution.merged(columns.map((one) => one.distribution)),
  columns,
  leftOut: null,
};
const STYLE = { measure: "count", colourScale: "log", isDark: false } as const;

test("a heatmap as CSV has a row per cell, and nothing for what is unknown", () => {
  expect(heatmapCsv(HEATMAP)).toBe(
    "start,end,lower (ms),upper (ms),count\r\n" +
      "1970-01-01T00:00:00.000Z,1970-01-01T00:01:00.000Z,1,10,3\r\n" +
      "1970-01-01T00:00:00.000Z,1970-01-01T00:01:00.000Z,10,100,1\r\n" +
      "1970-01-01T00:02:00.000Z,1970-01-01T00:03:00.000Z,10,,900\r\n",
  );
});

test("a heatmap as SVG has its cells, lines, ticks and threshold", () => {
  const drawing = heatmapDrawing(HEATMAP, STYLE, ["p99"], 50, (name) => name);
  // The empty column has no cell, and cells of one colour above each other are one.
  expect(new Set(drawing.cells!.map((one) => one.x[0]))).toEqual(new Set([0, 120e3]));
  expect(drawing.cells!.length).toBeLessThan(10);
  expect(drawing.cells!.every(({ y }) => y[0] >= 0 && y[1] <= 1 && y[0] < y[1])).toBe(true);
  const [few, many] = [drawing.cells![0]!, drawing.cells![drawing.cells!.length - 1]!];
  expect(few.colour).not.toBe(many.colour);
  const svg = toSvg(drawing);
  for (const text of ["latency", "max", "p99", "10 ms", "50 ms"])
    expect(svg).toContain(`>${text}</text>`);
  expect(svg.match(/fill="rgb\(/g)?.length).toBe(drawing.cells!.length);
});
