import { expect, test } from "vitest";

import { exact } from "../src/lib/distribution";
import { excessState, largestExcess } from "../src/lib/excess";

// The edges are those of the server's test: 56 and 57 of 3,600.
test.each([
  [38, 3_600, "usual"],
  [56, 3_600, "usual"],
  [57, 3_600, "affected"],
  [1, 1, "usual"],
  [3, 3, "affected"],
  [0, 0, "usual"],
] as const)("%d of %d above the threshold are %s", (above, count, expected) =>
  expect(excessState(exact(above), count)).toBe(expected),
);

// "Buckets too wide to tell" of 1,029 to 1,070, where 921 are expected.
test("a lower bound that chance does not explain is an excess", () => {
  expect(excessState({ lower: 1_029, estimate: 1_050, upper: 1_070 }, 92_150)).toBe("affected");
});

test("a bucket that may hold all slow requests is uncertain", () => {
  expect(excessState({ lower: 0, estimate: 400, upper: 700 }, 3_600)).toBe("uncertain");
});

// "In 84 of 181 columns, the first at 16:36" was read as an outage of six hours.
test("the largest excess is the incident, not all columns with a slow value", () => {
  const usual = { above: 1, count: 300 };
  const slow = { above: 30, count: 100 };
  const columns = [usual, usual, slow, slow, { above: 0, count: 100 }, slow, usual];
  expect(largestExcess(columns)).toEqual({ first: 2, last: 5, above: 90, count: 400 });
  expect(largestExcess([slow, slow])).toBeNull();
  expect(largestExcess([usual, usual])).toBeNull();
  expect(largestExcess([])).toBeNull();
});
