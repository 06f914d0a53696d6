import { expect, test } from "vitest";

import { toSvg } from "../src/lib/chartDrawing";
import {
  histogramCsv,
  histogramDrawing,
  spectrumCsv,
  spectrumDrawing,
} from "../src/lib/distributionDrawing";
import { Distribution, exact } from "../src/lib/distribution";
import { differenceCsv, differenceDrawing, subtractHeatmaps } from "../src/lib/heatmapDifference";
import { Scale } from "../src/lib/scale";

const distribution = new Distribution(
  [
    { lower: 1, upper: 10, count: 3 },
    { lower: 10, upper: 100, count: 997 },
    { lower: 100, upper: Infinity, count: 1 },
  ],
  exact(50_000),
);
const subject = { title: "latency", distribution, unit: "ms" };
const name = (of: string) => of;

// Only heatmaps and line charts could be exported.
test("a histogram is exported with its bars, axis of counts and threshold", () => {
  const drawing = histogramDrawing(subject, 50, name);
  expect(drawing.cells!.length).toBeGreaterThan(0);
  expect(drawing.cells!.every(({ y }) => y[0] === 0 && y[1] > 0 && y[1] <= 1)).toBe(true);
  const svg = toSvg(drawing);
  for (const text of ["latency", "10 ms", "threshold 50 ms", "1"])
    expect(svg).toContain(`>${text}</text>`);
  expect(histogramCsv(subject)).toBe(
    "lower (ms),upper (ms),count\r\n1,10,3\r\n10,100,997\r\n100,,1\r\n",
  );
});

test("a spectrum is exported with its percentiles and their bounds", () => {
  const svg = toSvg(spectrumDrawing(subject, name));
  for (const text of ["latency", "min", "p50", "p99", "value", "lower bound", "upper bound"])
    expect(svg).toContain(`>${text}</text>`);
  const rows = spectrumCsv(subject).trim().split("\r\n");
  expect(rows[0]).toBe("quantile,lower (ms),estimate (ms),upper (ms)");
  expect(rows.length).toBe(201);
  expect(Number(rows[1]!.split(",")[0])).toBe(0);
  const upper = rows.map((row) => Number(row.split(",")[3]));
  expect(upper.slice(1).every((value, at) => at === 0 || value >= upper[at]!)).toBe(true);
});

test("a difference over time is exported with a cell where the shares differ", () => {
  const heatmap = (cells: { lower: number; upper: number; count: number }[]) => ({
    selector: "a",
    series: 1,
    unit: "ms",
    start: 0,
    end: 60e3,
    step: 60e3,
    total: Distribution.EMPTY,
    leftOut: null,
    columns: [{ start: 0, end: 60e3, distribution: new Distribution(cells), gaps: [] }],
  });
  const [low, high] = [
    { lower: 1, upper: 10, count: 1 },
    { lower: 10, upper: 100, count: 1 },
  ];
  const [a, b, scale] = [heatmap([low, high]), heatmap([low]), new Scale(1, 100, 1)];
  const difference = subtractHeatmaps(a, b, scale, 2);
  const svg = toSvg(differenceDrawing(difference, a, scale, "A and B", false, name));
  expect(svg).toContain(">A and B: blue A, orange B</text>");
  expect(svg.match(/fill="rgb\(/g)?.length).toBe(2);
  expect(differenceCsv(difference, a, scale)).toBe(
    "start,end,lower (ms),upper (ms),share in B less that in A\r\n" +
      "1970-01-01T00:00:00.000Z,1970-01-01T00:01:00.000Z,1,10,0.5\r\n" +
      "1970-01-01T00:00:00.000Z,1970-01-01T00:01:00.000Z,10,100,-0.5\r\n",
  );
});

test("names of percentiles have room before the maximum, and on a narrow chart", () => {
  const names = (count: number, isNarrow: boolean) => {
    const cells = [{ lower: 1, upper: 10, count }];
    const of = { title: "latency", distribution: new Distribution(cells), unit: "ms" };
    return spectrumDrawing(of, name, isNarrow).xTicks.map((tick) => tick.text);
  };
  expect(names(1_001, false)).toEqual(["min", "p50", "p90", "p99", "max"]);
  expect(names(10_000, true)).toEqual(["min", "p90", "p99", "p99.9", "max"]);
  expect(names(2, false)).toEqual(["min", "max"]);
});
