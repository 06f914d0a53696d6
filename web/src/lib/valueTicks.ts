/** Ticks of a linear axis of values: evenly spaced, round in their unit, named in one unit. */

import type { AxisTick } from "./chartLine";
import { linearTicks } from "./scale";
import { formatInUnit, isTimeUnit, nanosecondsOf } from "./unit";

/** Steps of seconds, minutes, hours and days, in nanoseconds. */
const TIME_STEPS: readonly number[] = [
  ...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * 1e9),
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60e9),
  ...[1, 2, 3, 6, 12].map((hours) => hours * 3_600e9),
  ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * 86_400e9),
];

/** At most about `max` ticks from `low` to `high`. */
export function valueTicks(low: number, high: number, max: number, unit: string): AxisTick[] {
  const ticks = timeTicks(low, high, max, unit) ?? linearTicks(low, high, max);
  const greatest = ticks.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  return ticks.map((at) => ({ at, text: formatInUnit(at, greatest, unit) }));
}

/** Ticks of durations of a second and more; null if decimal ones fit. */
function timeTicks(low: number, high: number, max: number, unit: string): number[] | null {
  if (!isTimeUnit(unit)) return null;
  const scale = nanosecondsOf(unit);
  const least = ((high - low) * scale) / Math.max(max, 1);
  const step = TIME_STEPS.find((one) => one >= least * (1 - 1e-9));
  if (least < 1e9 || step === undefined) return null;
  const [first, last] = [Math.ceil((low * scale) / step), Math.floor((high * scale) / step)];
  return Array.from({ length: last - first + 1 }, (_, at) => ((first + at) * step) / scale);
}
