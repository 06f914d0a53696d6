import { expect, test } from "vitest";

import { colourSteps, STEPS } from "../src/lib/colour";
import { Distribution } from "../src/lib/distribution";
import { binRows } from "../src/lib/raster";
import { Scale } from "../src/lib/scale";

const cell = (lower: number, upper: number, count: number) => ({ lower, upper, count });
const sum = (rows: Float64Array) => rows.reduce((a, b) => a + b, 0);

test.each([
  [
    "negative, zero and positive",
    [cell(-1e6, -1e3, 7), cell(0, 0, 5), cell(1e3, 1e4, 11), cell(1e4, 1e9, 13)],
  ],
  ["two grids that overlap", [cell(1, 10, 3), cell(2, 4, 5), cell(9, 11, 2)]],
  ["open cells", [cell(-Infinity, 1, 2), cell(1, 2, 3), cell(2, Infinity, 4)]],
  ["one value", [cell(17, 17, 1)]],
  [
    "more than 32 bits can count by ones",
    [cell(0, 0, 2 ** 40 + 1), cell(1, 2, 2 ** 31 + 1), cell(2, 900, 333_333_333)],
  ],
])("all that is counted is drawn: %s", (_, cells) => {
  const distribution = new Distribution(cells);
  const rows = new Float64Array(300);
  for (const scale of [Scale.around([[1, 1e3]]), Scale.around([[-1e6, 1e9]])]) {
    binRows(distribution, scale, rows);
    // Counts are whole; the rounding error of a sum of parts is far below one.
    expect(sum(rows) / distribution.count).toBeCloseTo(1, 7);
    expect(Math.round(sum(rows))).toBe(distribution.count);
    expect(Math.min(...rows)).toBeGreaterThanOrEqual(0);
  }
});

test("a cell is in the rows that it covers", () => {
  const scale = new Scale(1, 1e3, 1);
  const rows = new Float64Array(3);
  binRows(new Distribution([cell(1, 10, 4), cell(10, 1000, 8)]), scale, rows);
  expect([...rows].map((row) => Math.round(row * 1e3) / 1e3)).toEqual([4, 4, 4]);
});

test.each(["log", "linear", "equalised"] as const)("more is never lighter: %s", (colouring) => {
  const counts = Float64Array.from({ length: 1000 }, (_, at) => 1 + at * at);
  const steps = colourSteps(colouring, 1, counts[999]!, () => counts);
  const found = [...counts].map(steps.toStep);
  expect(
    found.every((step, at) => step >= 0 && step < STEPS && (at === 0 || step >= found[at - 1]!)),
  ).toBe(true);
  expect(found[999]).toBe(STEPS - 1);
});
