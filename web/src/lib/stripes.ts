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
  const part = intervalOfPart(distances, step);
  if (part !== null) return part;
  const least = Math.min(...distances);
  // An interval of 2.5 columns gives distances of 2 and 3; a missing value gives one of 5.
  const regular = distances.filter((distance) => distance - least <= 1);
  if (regular.length < distances.length * 0.8) return null;
  const average = regular.reduce((sum, distance) => sum + distance, 0) / regular.length;
  return average > 1.05 ? average * step : null;
}

/** A part of the range with an interval of its own has at least this share of the columns. */
const PART_SHARE = 0.25;

/**
 * The interval of data that was once sent less often: the distances of a part of the range are
 * regular and longer than a column. Null if there is no such part.
 */
function intervalOfPart(distances: readonly number[], step: number): number | null {
  const all = distances.reduce((sum, distance) => sum + distance, 0);
  let longest: number | null = null;
  for (let from = 0; from < distances.length;) {
    const first = distances[from]!;
    let to = from;
    while (to < distances.length && distances[to] === first) to++;
    const run = to - from;
    if (first > 1 && run >= MIN_COLUMNS && run * first >= PART_SHARE * all)
      longest = Math.max(longest ?? 0, first * step);
    from = to;
  }
  return longest;
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
