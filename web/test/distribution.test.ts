import { describe, expect, it, test } from "vitest";

import { Distribution, drawnBounds, exact, isWide, isWideCount } from "../src/lib/distribution";
import { formatRange } from "../src/lib/unit";

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

test("values are spread evenly within a cell", () => {
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
  expect(THREE.countAbove(limit)).toEqual({ lower, estimate, upper });
});

test("an open cell has what is known of it", () => {
  const open = new Distribution([cell(-Infinity, 5, 1), cell(5, Infinity, 1)]);
  expect(open.min).toMatchObject({ lower: -Infinity, estimate: 0 });
  expect(open.max).toMatchObject({ estimate: 5, upper: Infinity });
  expect(open.countAbove(7)).toEqual({ lower: 0, estimate: 0, upper: 1 });
});

test("a bucket around zero is not spread below zero where nothing is negative", () => {
  const above = new Distribution([cell(-1, 1, 3), cell(8, 9, 1)]);
  expect(above.quantile(0.25)).toEqual({ lower: -1, estimate: 0.25, upper: 1 });
  expect(above.countAbove(0)).toEqual({ lower: 1, estimate: 4, upper: 4 });
  const both = new Distribution([cell(-9, -8, 1), cell(-1, 1, 3), cell(8, 9, 1)]);
  expect(both.quantile(0.6)!.estimate).toBe(0);
});

test("merging loses nothing", () => {
  const merged = Distribution.merged([
    THREE,
    THREE,
    new Distribution([cell(-5, -1, 3)], exact(-9)),
  ]);
  expect(merged.count).toBe(11);
  expect(merged.cells.map((one) => one.lower)).toEqual([-5, 0, 10, 20]);
  expect(merged.sum.estimate).toBe(91);
});

test("recorded extremes are exact", () => {
  const ends = { min: exact(3), max: exact(31) };
  const distribution = new Distribution(THREE.cells, THREE.sum, ends);
  expect([
    distribution.min,
    distribution.max,
    distribution.quantile(0),
    distribution.quantile(1),
  ]).toEqual([exact(3), exact(31), exact(3), exact(31)]);
  expect(distribution.quantile(0.5)).toEqual(THREE.quantile(0.5));
  const other = new Distribution([cell(20, 40, 1)], exact(35), { min: exact(35), max: exact(35) });
  const merged = Distribution.merged([distribution, Distribution.EMPTY, other]);
  expect([merged.min, merged.max]).toEqual([exact(3), exact(35)]);
  expect(Distribution.merged([distribution, THREE]).max).toEqual(THREE.max);
});

test("nothing has no statistics", () => {
  const { EMPTY } = Distribution;
  expect([EMPTY.min, EMPTY.max, EMPTY.mean, EMPTY.quantile(0.5)]).toEqual([null, null, null, null]);
  expect(EMPTY.countAbove(1)).toEqual(exact(0));
});

describe("default bounds of OpenTelemetry with seconds", () => {
  /** 34,424 values in the bucket of 0 to 5 s, with a mean of 47 ms and a maximum of 3.2 s. */
  const count = 34_424;
  const bucket = { lower: Number.MIN_VALUE, upper: 5, count };
  const sum = exact(count * 0.047);

  it("count above 250 ms is at most the share that the mean allows", () => {
    const above = new Distribution([bucket], sum).countAbove(0.25);
    expect(above.lower).toBe(0);
    expect(above.upper / count).toBeGreaterThan(0.187);
    expect(above.upper / count).toBeLessThanOrEqual(0.1881);
    expect(isWide(above.lower, above.upper)).toBe(true);
    expect(new Distribution([bucket]).countAbove(0.25).upper).toBe(count);
  });

  it("a minimum leaves less", () => {
    const above = new Distribution([{ ...bucket, lower: 0.03 }], sum).countAbove(0.25);
    expect(above.upper / count).toBeLessThan(0.078);
  });

  it("the median is at most twice the mean", () => {
    const median = new Distribution([bucket], sum).quantile(0.5)!;
    expect(median.upper).toBeGreaterThan(0.0939);
    expect(median.upper).toBeLessThan(0.0942);
    expect(median.estimate).toBeLessThanOrEqual(median.upper);
  });

  it("a large sum needs values above", () => {
    const above = new Distribution([bucket], exact(count * 4)).countAbove(0.25);
    // 4 = 5 p + 0.25 (1 - p)
    expect(above.lower / count).toBeGreaterThan(0.789);
    expect(above.lower / count).toBeLessThan(0.79);
  });

  it("axis begins two decades below the first bound, not at the smallest double", () => {
    expect(drawnBounds(bucket)).toEqual([0.05, 5]);
    expect(drawnBounds({ ...bucket, lower: 0.001 })).toEqual([0.001, 5]);
    expect(formatRange(bucket.lower, bucket.upper, "s")).toBe("0 s to 5 s");
  });
});

test("0 to 3 requests of thousands are not a wide range, 0 to 19 % are", () => {
  const between = (lower: number, upper: number) => ({ lower, estimate: lower, upper });
  expect(isWideCount(between(0, 3), 3_600)).toBe(false);
  expect(isWideCount(between(0, 9), 3_600)).toBe(false);
  expect(isWideCount(between(0, 10), 3_600)).toBe(true);
  expect(isWideCount(between(0, 3), 20)).toBe(true);
  expect(isWideCount(between(0, 6_500), 34_424)).toBe(true);
  expect(isWideCount(between(6_000, 6_500), 34_424)).toBe(false);
});

test("a rate of half a value per second has quantiles and a count above a threshold", () => {
  const rate = new Distribution([cell(0, 10, 0.2), cell(10, 20, 0.2), cell(20, 40, 0.1)], exact(7));
  expect(rate.isWhole).toBe(false);
  expect(rate.quantile(0.2)!.estimate).toBeCloseTo(5);
  expect(rate.quantile(0.5)).toMatchObject({ lower: 10, upper: 20 });
  expect(rate.quantile(0.9)!.estimate).toBeCloseTo(30);
  expect(rate.quantile(1)).toMatchObject({ lower: 20, estimate: 40, upper: 40 });
  const above = rate.countAbove(15);
  expect(above.lower).toBeCloseTo(0.1);
  expect(above.estimate).toBeCloseTo(0.2);
  expect(above.upper).toBeCloseTo(0.3);
  expect(rate.mean!.estimate).toBeCloseTo(14);
});
