/** Periods in which alerts were active, in words. Times are in milliseconds. */

import type { AlertHistory, AlertPeriod, AlertRow } from "./alertHistory";
import type { AlertJson } from "./alerts";
import { formatDateTime, formatDuration } from "./time";

/** Start and end: `2026-11-26 12:00:00 to 12:45:00`; the date of the end only if it differs. */
export function formatPeriod(from: number, to: number): string {
  const [start, end] = [formatDateTime(from), formatDateTime(to)];
  const isSameDay = start.slice(0, 10) === end.slice(0, 10);
  return `${start} to ${isSameDay ? end.slice(11) : end}`;
}

/** The last time in which an alert fired, or was pending if it never fired. */
export function lastPeriod({ periods }: AlertRow): AlertPeriod {
  return periods.findLast(({ state }) => state === "firing") ?? periods.at(-1)!;
}

/** `last 2026-11-26 12:00:00 to 12:45:00`, `since 2026-11-26 12:00:00`. */
export function describePeriod(row: AlertRow, { range, step }: AlertHistory): string {
  const { start, end, isOpen } = lastPeriod(row);
  // Without changes: the evaluation of the last column may be on its way.
  if (isOpen ?? end >= range[1] - 1.5 * step) return `since ${formatDateTime(start)}`;
  return `${row.fired > 1 ? "last " : ""}${formatPeriod(start, end)}`;
}

/** Whether an alert is that of a row of the history, whose labels have no name. */
export function sameLabels(
  { name, labels }: AlertJson,
  row: { name: string; labels: Readonly<Record<string, string>> },
): boolean {
  const { alertname: _, ...others } = labels;
  const keys = Object.keys(others);
  const isSame = keys.length === Object.keys(row.labels).length;
  return name === row.name && isSame && keys.every((key) => others[key] === row.labels[key]);
}

/** Share of a duration that the steps in which it was read may be wrong by, without saying so. */
const EXACT_SHARE = 0.1;

/** `fired 2 times, about 5 min`; `step` is the time between two looks, in milliseconds. */
export function describeFiring(fired: number, firingMs: number, step: number): string {
  if (fired === 0) return "pending only";
  const about = fired * step > EXACT_SHARE * firingMs ? "about " : "";
  return `fired ${fired === 1 ? "once" : `${fired} times`}, ${about}${formatDuration(firingMs)}`;
}
