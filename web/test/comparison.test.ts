import { expect, test } from "vitest";

import { describeComparison, type QuantilePair } from "../src/lib/comparison";
import { exact } from "../src/lib/distribution";

const pair = (q: number, a: number, b: number, significant = true): QuantilePair => ({
  q,
  a: exact(a),
  b: exact(b),
  significant,
});

test.each([
  [
    [pair(0.5, 0.123, 0.04), pair(0.99, 0.5, 0.25)],
    0.0005,
    "s",
    "B is faster: p50 40 ms against 123 ms (−67 %), p99 250 ms against 500 ms (−50 %). " +
      "Not chance (p = 0.0005).",
  ],
  [
    [pair(0.5, 0.04, 0.041, false), pair(0.99, 0.1, 0.3)],
    0.012,
    "s",
    "B is slower at p99: p50 41 ms against 40 ms (+2 %), p99 300 ms against 100 ms (+200 %). " +
      "Not chance (p = 0.012).",
  ],
  [
    [pair(0.5, 100, 50), pair(0.99, 100, 200)],
    0.01,
    "B",
    "B is lower at p50, higher at p99: p50 50 B against 100 B (−50 %), " +
      "p99 200 B against 100 B (+100 %). Not chance (p = 0.010).",
  ],
  [
    [pair(0.5, 0.04, 0.04, false), pair(0.99, 0.1, 0.1, false)],
    0.4,
    "s",
    "No difference beyond chance: p50 40 ms against 40 ms (±0 %), " +
      "p99 100 ms against 100 ms (±0 %); p = 0.40.",
  ],
  [
    [pair(0.5, 0, 5), pair(0.99, 1, 40)],
    null,
    "",
    "Too few intervals to exclude chance: p50 5 against 0, p99 40 against 1 (40 times).",
  ],
] as const)("quantiles %j with p = %s in %s", (quantiles, pValue, unit, expected) =>
  expect(describeComparison(quantiles, pValue, unit)).toBe(expected),
);
