import { expect, test } from "vitest";

import { Distribution, exact } from "../src/lib/distribution";

const cell = (lower: number, upper: number, count: number) => ({ lower, upper, count });
const THREE = new Distribution([cell(0, 10, 2), cell(10, 20, 1), cell(20, 40, 1)], exact(50));

test.each([
  [0, 0, 10],
  [0.5, 0, 10],
  [0.51, 10, 20],
  [0.75, 10, 20],
  [1, 20, 40],
])("the quantile %d lies between its cell's ends", (q, lower, upper) => {
  expect(THREE.quantile(q)).toMatchObject({ lower, upper });
});

test("values of a cell are taken as evenly spread", () => {
  expect(THREE.quantile(0.25)!.estimate).toBeCloseTo(10 / 3);
  expect(THREE.quantile(0.5)!.estimate).toBeCloseTo(20 / 3);
});

test.each([
  [-1, [4, 4, 4]],
  [0, [2, 4, 4]],
  [5, [2, 3, 4]],
  [10, [1, 2, 2]],
  [40, [0, 0, 0]],
])("above %d", (limit, [lower, estimate, upper]) => {
  expect(THREE.above(limit)).toEqual({ lower, estimate, upper });
});

test("an open cell has what is known of it", () => {
  const open = new Distribution([cell(-Infinity, 5, 1), cell(5, Infinity, 1)]);
  expect(open.min).toMatchObject({ lower: -Infinity, estimate: 0 });
  expect(open.max).toMatchObject({ estimate: 5, upper: Infinity });
  expect(open.above(7)).toEqual({ lower: 0, estimate: 0, upper: 1 });
});

test("a bucket around zero is not spread below zero where nothing is negative", () => {
  const above = new Distribution([cell(-1, 1, 3), cell(8, 9, 1)]);
  expect(above.quantile(0.25)).toEqual({ lower: -1, estimate: 0.25, upper: 1 });
  expect(above.above(0)).toEqual({ lower: 1, estimate: 4, upper: 4 });
  const both = new Distribution([cell(-9, -8, 1), cell(-1, 1, 3), cell(8, 9, 1)]);
  expect(both.quantile(0.6)!.estimate).toBe(0);
});

test("merging loses nothing", () => {
  const merged = Distribution.merged([THREE, THREE, new Distribution([cell(-5, -1, 3)], exact(-9))]);
  expect(merged.count).toBe(11);
  expect(merged.cells.map((one) => one.lower)).toEqual([-5, 0, 10, 20]);
  expect(merged.sum.estimate).toBe(91);
});

test("the least and the greatest are as well known as somebody told", () => {
  const ends = { min: exact(3), max: exact(31) };
  const told = new Distribution(THREE.cells, THREE.sum, ends);
  expect([told.min, told.max, told.quantile(0), told.quantile(1)]).toEqual([exact(3), exact(31), exact(3), exact(31)]);
  expect(told.quantile(0.5)).toEqual(THREE.quantile(0.5));
  const other = new Distribution([cell(20, 40, 1)], exact(35), { min: exact(35), max: exact(35) });
  const merged = Distribution.merged([told, Distribution.EMPTY, other]);
  expect([merged.min, merged.max]).toEqual([exact(3), exact(35)]);
  expect(Distribution.merged([told, THREE]).max).toEqual(THREE.max);
});

test("nothing has no statistics", () => {
  const { EMPTY } = Distribution;
  expect([EMPTY.min, EMPTY.max, EMPTY.mean, EMPTY.quantile(0.5)]).toEqual([null, null, null, null]);
  expect(EMPTY.above(1)).toEqual(exact(0));
});
