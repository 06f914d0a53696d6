/** Heatmaps whose columns are shorter than the interval of their data. */

import type { Heatmap } from "./api";

/** Fewer columns with values do not show an interval. */
const MIN_COLUMNS = 4;

/**
 * The interval of the data in milliseconds, if every other column or more is empty because the
 * columns are shorter: the heatmap would be stripes. Null otherwise; empty columns at irregular
 * distances are how the data are.
 */
export function intervalOfStripes({ columns, step }: Heatmap): number | null {
  const filled = columns.flatMap((column, at) => (column.distribution.isEmpty ? [] : [at]));
  if (filled.length < MIN_COLUMNS) return null;
  const distances = filled.slice(1).map((at, index) => at - filled[index]!);
  const least = Math.min(...distances);
  // An interval of 2.5 columns gives distances of 2 and 3; a missing value gives one of 5.
  const regular = distances.filter((distance) => distance - least <= 1);
  if (regular.length < distances.length * 0.8) return null;
  const average = regular.reduce((sum, distance) => sum + distance, 0) / regular.length;
  return average > 1.05 ? average * step : null;
}

/**
 * Heatmaps without stripes: if those of `fetchAt(0)` have any, they are fetched again with columns
 * of at least the longest interval.
 */
export async function fetchWithoutStripes(
  fetchAt: (interval: number) => Promise<Heatmap[]>,
): Promise<Heatmap[]> {
  const heatmaps = await fetchAt(0);
  const longest = Math.max(...heatmaps.map((one) => intervalOfStripes(one) ?? 0));
  return longest > 0 ? fetchAt(longest) : heatmaps;
}
