import { expect, test } from "vitest";

import type { Heatmap } from "../src/lib/api";
import { Distribution } from "../src/lib/distribution";
import { fetchWithoutStripes, intervalOfStripes } from "../src/lib/stripes";
import { columnStep, fixedColumnStep } from "../src/lib/time";

/** A heatmap with columns of 10 s: `#` is a column with values. */
function heatmap(columns: string): Heatmap {
  const value = new Distribution([{ lower: 1, upper: 2, count: 5 }]);
  return {
    selector: "latency",
    series: 1,
    unit: "ms",
    start: 0,
    end: columns.length * 10e3,
    step: 10e3,
    total: Distribution.EMPTY,
    leftOut: null,
    columns: [...columns].map((column, at) => ({
      start: at * 10e3,
      end: (at + 1) * 10e3,
      distribution: column === "#" ? value : Distribution.EMPTY,
      gaps: [],
    })),
  };
}

test.each([
  ["readings of 60 s in columns of 10 s", "#.....#.....#.....#.....#.....", 60e3],
  ["readings of 25 s", "#..#.#..#.#..#.#..#.#..#.", 25e3],
  ["a missing reading", "#.....#.....#...........#.....#.....#.....#", 60e3],
  // The history of the demonstration has a row a minute, what follows one in ten seconds.
  ["a part with readings of 60 s", "#.....#.....#.....#.....#.....################", 60e3],
  ["a column per reading", "##########", null],
  ["an idle service", "####......####....", null],
  ["rare values at any time", "#...#.#.......#..#", null],
  ["too few to tell", "#.....#.....#", null],
])("%s", (_, columns, interval) => {
  const found = intervalOfStripes(heatmap(columns));
  if (interval === null) expect(found).toBeNull();
  else expect(Math.abs(found! - interval) / interval).toBeLessThan(0.25);
});

test("columns are not shorter than the interval of the data", () => {
  expect(columnStep(3_600e3, 1_000)).toBe(10e3);
  expect(columnStep(3_600e3, 1_000, 60e3)).toBe(60e3);
  expect(columnStep(3_600e3, 1_000, 25e3)).toBe(30e3);
});

// On a phone, the heatmap behind Who? had another range than the breakdown.
test("a fixed range of whole columns is not extended by longer ones", () => {
  const minute = 60e3;
  expect(fixedColumnStep(2 * minute, 364 * minute, 60)).toBe(2 * minute);
  expect(columnStep(362 * minute, 60)).toBe(10 * minute);
  // The interval of the data counts more, and a range of odd ends is extended.
  expect(fixedColumnStep(2 * minute, 364 * minute, 60, 10 * minute)).toBe(10 * minute);
  expect(fixedColumnStep(1, 3_600e3 + 1, 60)).toBe(minute);
});

test("two heatmaps with stripes are fetched again with the longer interval", async () => {
  const asked: number[] = [];
  const fetching = (pictures: string[]) => (interval: number) => {
    asked.push(interval);
    return Promise.resolve(pictures.map(heatmap));
  };
  await fetchWithoutStripes(fetching(["##########", "#.....#.....#.....#.....#....."]));
  await fetchWithoutStripes(fetching(["##########"]));
  expect(asked).toEqual([0, 60e3, 0]);
});
