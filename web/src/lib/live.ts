/** A heatmap that moves on with the clock: what is new is asked for, what stays is kept. */

import { heatmap, histogram, type Column, type Heatmap } from "./api";
import { Distribution } from "./distribution";
import { between } from "./time";

/**
 * The heatmap with later columns of the same length: those that it has already are replaced, which the last one needs as long as it
 * goes on; as many at the left go as come at the right. Columns that stay are the same objects, so that a picture can tell them.
 */
export function moved(held: Heatmap, later: readonly Column[], total: Distribution): Heatmap {
  const first = later[0];
  if (!first) return held;
  const kept = held.columns.filter((column) => column.start < first.start);
  const columns = [...kept, ...later].slice(-held.columns.length);
  const [start, end] = [
    columns[0]?.start ?? held.start,
    columns[columns.length - 1]?.end ?? held.end,
  ];
  return { ...held, columns, start, end, total };
}

/** What a picture of `held` has to do to be one of `next`: columns to replace at the right, then to push. Null: begin anew. */
export function difference(
  held: Heatmap,
  next: Heatmap,
): { replaced: Column[]; pushed: Column[] } | null {
  if (next.step !== held.step || next.columns.length !== held.columns.length) return null;
  // Of something else nothing fits, neither the axis nor its unit.
  if (next.selector !== held.selector || next.unit !== held.unit) return null;
  const known = new Set(held.columns);
  const fresh = next.columns.findIndex((column) => !known.has(column));
  if (fresh < 0) return next.columns[0] === held.columns[0] ? { replaced: [], pushed: [] } : null;
  // Where nothing stays, the axis is that of what comes: a link shows the same.
  if (fresh === 0) return null;
  const pushes = next.columns.filter(
    (column) => column.start > (held.columns[held.columns.length - 1]?.start ?? Infinity),
  ).length;
  // What stays has to be what is left of what was there.
  for (let at = 0; at < fresh; at++)
    if (next.columns[at] !== held.columns[at + pushes]) return null;
  const columns = next.columns.slice(fresh);
  return {
    replaced: columns.slice(0, columns.length - pushes),
    pushed: columns.slice(columns.length - pushes),
  };
}

/**
 * Asks for what came since, up to a moment. The whole is asked for anew if nothing of it would stay (nobody looked for long, or the
 * computer slept), or if something came late into a column that would.
 */
export async function follow(held: Heatmap, now: number, signal: AbortSignal): Promise<Heatmap> {
  const last = held.columns[held.columns.length - 1];
  if (!last) return held;
  const end = Math.max(Math.ceil(now / held.step) * held.step, last.end);
  const start = held.start + end - held.end;
  const whole = () => heatmap(held.selector, [start, end], held.step, signal);
  if (start >= last.start) return whole();
  const before = await histogram(held.selector, between(start, last.start), {}, signal);
  const kept = held.columns.filter((column) => start <= column.start && column.start < last.start);
  if (
    before.distribution.count !==
    kept.reduce((count, column) => count + column.distribution.count, 0)
  )
    return whole();
  const later = await heatmap(held.selector, [last.start, end], held.step, signal);
  const total = Distribution.merged([
    before.distribution,
    ...later.columns.map((column) => column.distribution),
  ]);
  return moved({ ...held, series: later.series }, later.columns, total);
}
