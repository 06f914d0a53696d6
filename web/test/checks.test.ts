import { expect, test } from "vitest";

import {
  availabilityShare,
  conditionOfCheck,
  describeAttempts,
  describeConditions,
  isOverdue,
  toAvailability,
} from "../src/lib/checks";
import { exact } from "../src/lib/distribution";
import type { TargetJson } from "../src/lib/sources";

const NOW = Date.UTC(2026, 10, 26, 12);

const target = (changes: Partial<TargetJson> = {}): TargetJson => ({
  kind: "check",
  name: "front",
  url: "https://shop.example/",
  labels: {},
  interval_ns: 10e9,
  timeout_ns: 5e9,
  state: "up",
  since_ns: 0,
  last_ns: (NOW - 4_000) * 1e6,
  last_duration_ns: 1e6,
  last_samples: 1,
  last_error: null,
  ...changes,
});

const row = (one: TargetJson | null) => ({
  name: "front",
  target: one,
  availability: null,
  httpStatus: null,
  certificateExpiry: null,
});

const points = (...counts: [number, number][]) =>
  counts.map(([time, count]) => ({ time, value: exact(count) }));

test("a time without an attempt is unknown, and counts neither as up nor as down", () => {
  const found = toAvailability(points([10, 2], [20, 1]), points([20, 1], [40, 3]), [0, 50], 10)!;
  expect(found.periods.map(({ state, start, end }) => [state, start, end])).toEqual([
    ["up", 0, 10],
    ["partly", 10, 20],
    ["unknown", 20, 30],
    ["down", 30, 40],
    ["unknown", 40, 50],
  ]);
  expect(found).toMatchObject({ succeeded: 3, failed: 4, unknownMs: 20 });
  expect(availabilityShare(found)).toBeCloseTo(3 / 7);
  expect(describeAttempts(found)).toBe("4 of 7 attempts failed");
});

test("without any attempt the availability is unknown, not 0 or 100 %", () => {
  expect(toAvailability([], [], [0, 100], 10)).toBeNull();
  expect(availabilityShare(null)).toBeNull();
  expect(describeAttempts(null)).toBe("no attempt in this range");
});

test("equal neighbours are one period, and a step that has not ended is not unknown yet", () => {
  const found = toAvailability(points([10, 1], [20, 1]), [], [0, 25], 10)!;
  expect(found.periods).toEqual([{ state: "up", start: 0, end: 20, text: "" }]);
  expect(found.unknownMs).toBe(0);
});

test("a check is up only with a recent result", () => {
  expect(conditionOfCheck(row(target()), NOW)).toBe("up");
  expect(conditionOfCheck(row(target({ state: "down" })), NOW)).toBe("down");
  expect(conditionOfCheck(row(target({ state: "unknown", last_ns: null })), NOW)).toBe("unknown");
  expect(conditionOfCheck(row(target()), NOW + 60_000)).toBe("stale");
  expect(conditionOfCheck(row(null), NOW)).toBe("removed");
  // Three intervals and the timeout.
  expect(isOverdue(target(), NOW + 31_000)).toBe(false);
  expect(isOverdue(target(), NOW + 31_001)).toBe(true);
  expect(describeConditions(["up", "stale", "down", "up"])).toBe(
    "1 down, 1 without a recent result, 2 up",
  );
});
