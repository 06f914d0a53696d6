import { expect, test } from "vitest";

import type { Heatmap } from "../src/lib/api";
import { describeDifference, differenceCell, subtractHeatmaps } from "../src/lib/heatmapDifference";
import { Distribution, type Cell } from "../src/lib/distribution";
import { Scale } from "../src/lib/scale";

const heatmap = (columns: Cell[][]): Heatmap => ({
  selector: "a",
  series: 1,
  unit: "ns",
  start: 0,
  end: columns.length,
  step: 1,
  total: Distribution.EMPTY,
  leftOut: null,
  columns: columns.map((cells, at) => ({
    start: at,
    end: at + 1,
    distribution: new Distribution(cells),
    gaps: [],
  })),
});

test("shares are subtracted, not counts", () => {
  const low = (count: number) => ({ lower: 1, upper: 10, count });
  const high = (count: number) => ({ lower: 10, upper: 100, count });
  const a = heatmap([[low(10)], [low(1), high(1)], []]);
  const b = heatmap([[low(1_000)], [low(1), high(3)], [low(1)]]);
  const found = subtractHeatmaps(a, b, new Scale(1, 100, 1), 2);
  expect([...found.values.slice(0, 2)]).toEqual([0, 0]);
  expect([...found.values.slice(2, 4)]).toEqual([-0.25, 0.25]);
  expect([...found.values.slice(4)]).toEqual([NaN, NaN]);
  expect(found.max).toBe(0.25);
});

test("a cell has the shares of both sides, and an empty side is no zero", () => {
  const low = (count: number) => ({ lower: 1, upper: 10, count });
  const high = (count: number) => ({ lower: 10, upper: 100, count });
  const a = heatmap([[low(1), high(1)], [], [low(1)]]);
  const b = heatmap([[low(1), high(3)], [low(1)], [low(5)]]);
  const cell = (column: number, row: number) =>
    differenceCell(a, b, new Scale(1, 100, 1), 2, [column, row]);
  const above = cell(0, 1);
  expect(above).toMatchObject({ start: 0, end: 1, a: 0.5, b: 0.75 });
  expect([above.lower, above.upper].map(Math.round)).toEqual([10, 100]);
  expect(describeDifference(above)).toBe("A 50 %, B 75 %: 25 % more in B");
  expect(describeDifference(cell(0, 0))).toBe("A 50 %, B 25 %: 25 % more in A");
  expect(describeDifference(cell(1, 0))).toBe("A no data, B 100 %");
  expect(describeDifference(cell(2, 0))).toBe("A 100 %, B 100 %: no difference");
});
