import { expect, test } from "vitest";

import { exact } from "../src/lib/distribution";
import {
  DEFAULT_EXPECTED,
  describeExcess,
  describeExpected,
  excessState,
  largestExcess,
} from "../src/lib/excess";

// The edges are those of the server's test: 56 and 57 of 3,600.
test.each([
  [38, 3_600, "usual"],
  [56, 3_600, "usual"],
  [57, 3_600, "affected"],
  [1, 1, "usual"],
  [3, 3, "affected"],
  [0, 0, "usual"],
] as const)("%d of %d above the threshold are %s", (above, count, expected) =>
  expect(excessState(exact(above), count, DEFAULT_EXPECTED)).toBe(expected),
);

// "Buckets too wide to tell" of 1,029 to 1,070, where 921 are expected.
test("a lower bound that chance does not explain is an excess", () => {
  const above = { lower: 1_029, estimate: 1_050, upper: 1_070 };
  expect(excessState(above, 92_150, DEFAULT_EXPECTED)).toBe("affected");
});

test("a bucket that may hold all slow requests is uncertain", () => {
  const above = { lower: 0, estimate: 400, upper: 700 };
  expect(excessState(above, 3_600, DEFAULT_EXPECTED)).toBe("uncertain");
});

// Explore said that 1 % is expected, where the overview had the 0.5 % of the objective.
test("above the threshold of an SLO its share is expected, and the text names it", () => {
  const payments = { share: 0.005, slo: "payments" };
  expect(describeExpected(payments)).toBe("0.5\u00a0% (SLO payments)");
  expect(describeExpected(DEFAULT_EXPECTED)).toBe("1\u00a0% (no SLO)");
  // 36 of 3,600 are 1 %, but twice as many as 0.5 %.
  const states = [DEFAULT_EXPECTED, payments].map((one) => excessState(exact(36), 3_600, one));
  expect(states).toEqual(["usual", "affected"]);
  expect(describeExcess("affected", payments)).toBe(
    "0.5\u00a0% (SLO payments) expected: more than chance explains (p < 0.001)",
  );
});

// "In 84 of 181 columns, the first at 16:36" was read as an outage of six hours.
test("the largest excess is the incident, not all columns with a slow value", () => {
  const usual = { above: 1, count: 300 };
  const slow = { above: 30, count: 100 };
  const columns = [usual, usual, slow, slow, { above: 0, count: 100 }, slow, usual];
  const largest = (of: typeof columns) => largestExcess(of, DEFAULT_EXPECTED);
  expect(largest(columns)).toEqual({ first: 2, last: 5, above: 90, count: 400 });
  expect(largest([slow, slow])).toBeNull();
  expect(largest([usual, usual])).toBeNull();
  expect(largest([])).toBeNull();
});
