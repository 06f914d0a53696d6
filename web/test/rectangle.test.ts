import { expect, test } from "vitest";

import type { HeatmapColumn } from "../src/lib/api";
import { Distribution } from "../src/lib/distribution";
import { parseRectangle, snapRectangle, writeRectangle } from "../src/lib/rectangle";

test("a shared link keeps the rectangle of the breakdown", () => {
  const rectangle = { from: 1_794_906_565_000, to: 1_794_906_600_000, low: 0.25, high: 1.5 };
  expect(parseRectangle(writeRectangle(rectangle))).toEqual(rectangle);
  const negative = { ...rectangle, low: -3e-9, high: 1e12 };
  expect(parseRectangle(writeRectangle(negative))).toEqual(negative);
});

test.each(["", "1,2,3", "1,2,3,", "2,1,3,4", "1,2,4,3", "a,b,c,d", "1,2,3,NaN", "1,Infinity,3,4"])(
  "%j is no rectangle",
  (text) => expect(parseRectangle(text)).toBeNull(),
);

test("a rectangle without an upper limit is written and read", () => {
  const rectangle = { from: 1, to: 2, low: 0.25, high: Infinity };
  expect(parseRectangle(writeRectangle(rectangle))).toEqual(rectangle);
});

const column = (start: number, ...buckets: [number, number, number][]): HeatmapColumn => {
  const cells = buckets.map(([lower, upper, count]) => ({ lower, upper, count }));
  return { start, end: start + 10, distribution: new Distribution(cells), gaps: [] };
};
const COLUMNS = [
  column(0, [1, 2, 5], [4, 8, 1]),
  column(10, [1, 2, 7], [2, 4, 3]),
  column(20),
  column(30, [0, 1, 2]),
];
const snap = (from: number, to: number, low: number, high: number) =>
  snapRectangle(COLUMNS, { from, to, low, high });

test("a click selects the bucket and the column under it, all of whose values are counted", () => {
  const { low, ...others } = snap(12, 12, 2.9, 3.1)!;
  expect(others).toEqual({ from: 10, to: 20, high: 4 });
  // The count is of values above `low`: the lower bound of the bucket is one of them.
  expect(low).toBeLessThan(2);
  const { distribution } = COLUMNS[1]!;
  expect(distribution.countAbove(low).lower - distribution.countAbove(4).upper).toBe(3);
  expect(low).toBeCloseTo(2, 12);
});

test("a dragged rectangle is extended to whole columns and buckets", () => {
  const selected = snap(3, 14, 1.5, 5);
  expect(selected).toMatchObject({ from: 0, to: 20, high: 8 });
  expect(selected!.low).toBeCloseTo(1, 12);
});

test("a click beside the buckets of a column selects all of it, beside all columns nothing", () => {
  expect(snap(5, 5, 3, 3.1)).toMatchObject({ from: 0, to: 10, high: Infinity });
  expect(snap(5, 5, NaN, NaN)!.low).toBeCloseTo(1, 12);
  expect(snap(25, 25, 1, 2)).toBeNull();
  expect(snap(99, 99, 1, 2)).toBeNull();
  // Zero and negative values have a double before them, too.
  expect(snap(35, 35, 0.5, 0.6)!.low).toBeLessThan(0);
  expect(parseRectangle(writeRectangle(snap(12, 12, 2.9, 3.1)!))).toEqual(snap(12, 12, 2.9, 3.1));
});
