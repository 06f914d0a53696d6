/**
 * What happened at a time, for every time axis: deploys and other annotations, changes of series,
 * and alerts that fire. Charts of the same range share one request.
 */

import { fetchAlertHistory } from "./alertHistory";
import { fetchAnnotations } from "./api";
import { rangeBetween } from "./time";

export type MarkKind = "note" | "change" | "alert";

export interface TimeMark {
  kind: MarkKind;
  text: string;
  start: number;
  end: number;
}

/** Custom properties of app.css. */
export const MARK_COLOURS: Readonly<Record<MarkKind, string>> = {
  note: "--note",
  change: "--warn",
  alert: "--alert",
};

/** How long marks are not asked for again. */
const FRESH_MS = 5_000;
/** Ranges that are remembered. */
const MAX_RANGES = 16;
/** Marks of alerts: more would hide the chart. */
const MAX_ALERTS = 100;
/** Parts of a range to which it is extended, so that charts with almost equal ranges share it. */
const PARTS = 60;

const known = new Map<string, { at: number; marks: Promise<TimeMark[]> }>();

/** Marks of a range, by time. */
export async function fetchTimeMarks(
  range: readonly [number, number],
  signal: AbortSignal,
): Promise<TimeMark[]> {
  const [annotations, history] = await Promise.all([
    fetchAnnotations(rangeBetween(...range), signal),
    fetchAlertHistory(range, signal),
  ]);
  const notes = annotations.map(({ text, tags, start, end }): TimeMark => {
    return { kind: tags["event"] === "series" ? "change" : "note", text, start, end };
  });
  const alerts = history.rows.flatMap(({ name, periods }) =>
    periods
      .filter(({ state }) => state === "firing")
      .map(({ start, end }): TimeMark => ({ kind: "alert", text: `${name} fires`, start, end })),
  );
  alerts.sort((a, b) => b.start - a.start);
  return [...notes, ...alerts.slice(0, MAX_ALERTS)].sort((a, b) => a.start - b.start);
}

function sharedMarks(from: number, to: number): Promise<TimeMark[]> {
  const part = Math.max((to - from) / PARTS, 1_000);
  const unit = 10 ** Math.floor(Math.log10(part));
  const range = [Math.floor(from / unit) * unit, Math.ceil(to / unit) * unit] as const;
  const key = range.join(" ");
  const now = Date.now();
  const found = known.get(key);
  if (found && now - found.at < FRESH_MS) return found.marks;
  const marks = fetchTimeMarks(range, AbortSignal.timeout(30_000));
  known.set(key, { at: now, marks });
  // The chart is shown without marks; the next one tries again.
  marks.catch(() => known.delete(key));
  for (const oldest of known.keys()) {
    if (known.size <= MAX_RANGES) break;
    known.delete(oldest);
  }
  return marks;
}

/** Marks of a chart's range. */
export class TimeMarks {
  value = $state.raw<TimeMark[]>([]);

  /** Must be called while a component initialises. */
  constructor(range: () => readonly [number, number]) {
    $effect(() => {
      const [from, to] = range();
      let isCurrent = true;
      sharedMarks(from, to).then(
        (marks) => isCurrent && (this.value = marks),
        () => {},
      );
      return () => (isCurrent = false);
    });
  }
}
