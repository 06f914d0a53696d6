import { expect, test } from "vitest";

import type { Column, Heatmap } from "../src/lib/api";
import { Distribution } from "../src/lib/distribution";
import { difference, moved } from "../src/lib/live";

const column = (at: number, count = 1): Column => ({
  start: at * 10,
  end: at * 10 + 10,
  distribution: new Distribution([{ lower: 1, upper: 2, count }]),
  gaps: [],
});
const heatmap = (columns: Column[]): Heatmap => ({
  selector: "a",
  series: 1,
  unit: "ns",
  start: columns[0]!.start,
  end: columns[columns.length - 1]!.end,
  step: 10,
  total: Distribution.EMPTY,
  columns,
});

test("the last column goes on, and others come", () => {
  const held = heatmap([column(0), column(1), column(2)]);
  const next = moved(held, [column(2, 5), column(3)], Distribution.EMPTY);
  expect(next.columns.map((one) => [one.start, one.distribution.count])).toEqual([[10, 1], [20, 5], [30, 1]]);
  expect([next.start, next.end]).toEqual([10, 40]);
  const found = difference(held, next)!;
  expect(found.replaced.map((one) => one.start)).toEqual([20]);
  expect(found.pushed.map((one) => one.start)).toEqual([30]);
});

test("what is the same needs nothing, what is another begins anew", () => {
  const held = heatmap([column(0), column(1), column(2)]);
  expect(difference(held, { ...held })).toEqual({ replaced: [], pushed: [] });
  expect(difference(held, heatmap([column(0), column(1), column(2)]))).toEqual({ replaced: [0, 1, 2].map(() => expect.anything()), pushed: [] });
  expect(difference(held, heatmap([column(0), column(1)]))).toBeNull();
  expect(difference(held, heatmap([column(1), column(0), held.columns[2]!]))).not.toEqual({ replaced: [], pushed: [] });
});

test("nothing new leaves all as it is", () => {
  const held = heatmap([column(0), column(1)]);
  expect(moved(held, [], Distribution.EMPTY)).toBe(held);
});
