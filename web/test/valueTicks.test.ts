import { expect, test } from "vitest";

import { valueTicks } from "../src/lib/valueTicks";

test.each([
  ["one unit for all", 0, 2.2, 5, "s", ["0 s", "0.5 s", "1 s", "1.5 s", "2 s"]],
  ["no 1.33 min", 0, 110e9, 6, "ns", ["0 min", "0.5 min", "1 min", "1.5 min"]],
  ["hours", 0, 7_200, 4, "s", ["0 h", "0.5 h", "1 h", "1.5 h", "2 h"]],
  ["small times", 0, 0.00045, 5, "s", ["0 µs", "100 µs", "200 µs", "300 µs", "400 µs"]],
  ["bytes", 0, 2.1e9, 4, "B", ["0 GB", "1 GB", "2 GB"]],
  ["no unit", 0, 2_600, 6, "", ["0k", "0.5k", "1k", "1.5k", "2k", "2.5k"]],
  ["below zero", -10, 10, 4, "", ["-10", "-5", "0", "5", "10"]],
])("ticks are even: %s", (_, low, high, max, unit, expected) => {
  const ticks = valueTicks(low, high, max, unit);
  expect(ticks.map((tick) => tick.text)).toEqual(expected);
  const steps = ticks.slice(1).map((tick, at) => tick.at - ticks[at]!.at);
  for (const step of steps) expect(step / steps[0]!).toBeCloseTo(1, 9);
});
