/** A rectangle of a heatmap, as it is written in the address. */

import type { HeatmapColumn } from "./api";

export interface Rectangle {
  /** Milliseconds since 1970. */
  from: number;
  to: number;
  /** In the unit of the heatmap: values above `low`, up to `high`, which may be infinite. */
  low: number;
  high: number;
}

/**
 * The whole columns and buckets that a dragged or clicked rectangle touches: their count is exact.
 * Where it touches no bucket it is the columns with all values; null if these are empty.
 */
export function snapRectangle(
  columns: readonly HeatmapColumn[],
  { from, to, low, high }: Rectangle,
): Rectangle | null {
  const inside = columns.filter(({ start, end }) => end > from && start <= to);
  const cells = inside.flatMap(({ distribution }) => distribution.cells);
  if (cells.length === 0) return null;
  const touched = cells.filter(({ lower, upper }) => upper >= low && lower <= high);
  const lowest = (touched.length > 0 ? touched : cells).reduce(
    (least, { lower }) => Math.min(least, lower),
    Infinity,
  );
  const highest = touched.reduce((most, { upper }) => Math.max(most, upper), -Infinity);
  return {
    from: inside[0]!.start,
    to: inside.at(-1)!.end,
    low: doubleBelow(lowest),
    high: touched.length > 0 ? highest : Infinity,
  };
}

/** The double before: a bucket includes its lower bound, the count above a limit does not. */
function doubleBelow(value: number): number {
  if (value === 0) return -Number.MIN_VALUE;
  return Math.max(value - Math.abs(value) * 2 ** -53, -Number.MAX_VALUE);
}

export function writeRectangle({ from, to, low, high }: Rectangle): string {
  return [Math.floor(from), Math.ceil(to), low, high].join(",");
}

/** Null if the text is not a rectangle. */
export function parseRectangle(text: string): Rectangle | null {
  const numbers = text.split(",").map((part) => (part.trim() === "" ? NaN : Number(part)));
  const isValid = numbers.length === 4 && numbers.slice(0, 3).every(Number.isFinite);
  if (!isValid || Number.isNaN(numbers[3])) return null;
  const [from, to, low, high] = numbers as [number, number, number, number];
  return from < to && low < high ? { from, to, low, high } : null;
}
