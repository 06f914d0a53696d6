/** A heatmap that moves with the clock: new columns are fetched, the others stay. */

import { fetchHeatmap, fetchHistogram, type Heatmap, type HeatmapColumn } from "./api";
import { Distribution } from "./distribution";
import { rangeBetween } from "./time";

/**
 * The heatmap with later columns of the same step. They replace columns of the same time, such as
 * the last one, which was incomplete; for each one appended, one is dropped at the left. Columns
 * that stay remain the same objects, by which a chart recognises them.
 */
export function advanceHeatmap(
  current: Heatmap,
  later: readonly HeatmapColumn[],
  total: Distribution,
): Heatmap {
  const first = later[0];
  if (!first) return current;
  const retained = current.columns.filter((column) => column.start < first.start);
  const columns = [...retained, ...later].slice(-current.columns.length);
  const start = columns[0]?.start ?? current.start;
  const end = columns[columns.length - 1]?.end ?? current.end;
  return { ...current, columns, start, end, total };
}

/** Columns that a chart of one heatmap has to replace at the right, and then to append. */
export interface ColumnChanges {
  replaced: HeatmapColumn[];
  appended: HeatmapColumn[];
}

/** Changes from a chart of `current` to one of `next`; null if it has to be redrawn. */
export function diffColumns(current: Heatmap, next: Heatmap): ColumnChanges | null {
  if (next.step !== current.step || next.columns.length !== current.columns.length) return null;
  // Another selector or unit has another axis.
  if (next.selector !== current.selector || next.unit !== current.unit) return null;
  const before = new Set(current.columns);
  const fresh = next.columns.findIndex((column) => !before.has(column));
  if (fresh < 0)
    return next.columns[0] === current.columns[0] ? { replaced: [], appended: [] } : null;
  // If nothing stays, the axis is recomputed, so that a link shows the same.
  if (fresh === 0) return null;
  const lastStart = current.columns[current.columns.length - 1]?.start ?? Infinity;
  const appends = next.columns.filter((column) => column.start > lastStart).length;
  // The retained columns must be the current ones, shifted by those that were dropped.
  for (let at = 0; at < fresh; at++) {
    if (next.columns[at] !== current.columns[at + appends]) return null;
  }
  const columns = next.columns.slice(fresh);
  const split = columns.length - appends;
  return { replaced: columns.slice(0, split), appended: columns.slice(split) };
}

/**
 * Fetches the columns since the last one, up to `now`. Fetches the whole heatmap if no column would
 * stay (the page was hidden or the computer suspended), or if late samples changed one that would.
 */
export async function fetchNewer(
  current: Heatmap,
  now: number,
  signal: AbortSignal,
): Promise<Heatmap> {
  const last = current.columns[current.columns.length - 1];
  if (!last) return current;
  const end = Math.max(Math.ceil(now / current.step) * current.step, last.end);
  const start = current.start + end - current.end;
  const whole = () => fetchHeatmap(current.selector, [start, end], current.step, signal);
  if (start >= last.start) return whole();
  const before = await fetchHistogram(
    current.selector,
    rangeBetween(start, last.start),
    {},
    signal,
  );
  const retained = current.columns.filter(
    (column) => start <= column.start && column.start < last.start,
  );
  const count = retained.reduce((sum, column) => sum + column.distribution.count, 0);
  if (before.distribution.count !== count) return whole();
  const later = await fetchHeatmap(current.selector, [last.start, end], current.step, signal);
  const total = Distribution.merged([
    before.distribution,
    ...later.columns.map((column) => column.distribution),
  ]);
  return advanceHeatmap({ ...current, series: later.series }, later.columns, total);
}
