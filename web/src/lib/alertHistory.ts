/** History of alerts, from the series `ALERTS`. Times are in milliseconds. */

import { formatLabels, runQuery, type QuerySeries } from "./query";
import { alignRange, columnStep } from "./time";

/** A time in which an alert was in one state. */
export interface AlertPeriod {
  state: "pending" | "firing";
  start: number;
  end: number;
}

/** An alert that was active in a range. */
export interface AlertRow {
  key: string;
  name: string;
  /** Without those that name alert and state. */
  labels: Record<string, string>;
  periods: AlertPeriod[];
  /** How often it began to fire. */
  fired: number;
  firingMs: number;
}

export interface AlertHistory {
  range: [number, number];
  step: number;
  rows: AlertRow[];
}

/** Evaluations in a range: more would be less than a pixel. */
const MAX_STEPS = 720;

export async function fetchAlertHistory(
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<AlertHistory> {
  const step = columnStep(to - from, MAX_STEPS);
  const range = alignRange(from, to, step);
  const result = await runQuery("ALERTS", "promql", range, step, signal);
  return { range, step, rows: toRows(result.series, step, to) };
}

/** Alerts, the one that was active last first. The last column may end after `to`. */
export function toRows(series: readonly QuerySeries[], step: number, to: number): AlertRow[] {
  const rows = new Map<string, AlertRow>();
  for (const one of series) {
    const { __name__: _, alertname: name = "", alertstate, ...labels } = one.labels;
    const state = alertstate === "firing" ? "firing" : "pending";
    const key = `${name} ${formatLabels(labels)}`;
    const row = rows.get(key) ?? { key, name, labels, periods: [], fired: 0, firingMs: 0 };
    rows.set(key, row);
    for (const { time, value } of one.points) {
      if (!value || !("estimate" in value)) continue;
      const last = row.periods.at(-1);
      const isNext = last && last.state === state && time - last.end < 1.5 * step;
      if (isNext) last.end = time;
      else row.periods.push({ state, start: time - step, end: time });
    }
  }
  const all = [...rows.values()].filter(({ periods }) => periods.length > 0);
  for (const row of all) {
    for (const period of row.periods) period.end = Math.max(Math.min(period.end, to), period.start);
    row.periods.sort((a, b) => a.start - b.start);
    const firing = row.periods.filter(({ state }) => state === "firing");
    row.fired = firing.length;
    row.firingMs = firing.reduce((sum, { start, end }) => sum + end - start, 0);
  }
  const end = (row: AlertRow) => Math.max(...row.periods.map((period) => period.end));
  return all.sort((a, b) => end(b) - end(a) || (a.key < b.key ? -1 : 1));
}
