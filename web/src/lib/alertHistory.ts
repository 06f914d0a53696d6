/**
 * History of alerts: their changes of state, whose times are exact; of alerts that did not change
 * in the range, and of earlier servers, the series `ALERTS`. Times are in milliseconds.
 */

import { getJson } from "./api";
import { formatLabels, runQuery, type QuerySeries } from "./query";
import { alignRange, columnStep, rangeBetween } from "./time";

/** A time in which an alert was in one state. */
export interface AlertPeriod {
  state: "pending" | "firing";
  start: number;
  end: number;
  /** Whether it lasts at the end of the range, if the changes say so. */
  isOpen?: boolean;
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
  /** Whether its times are those of the changes, to the millisecond. */
  isExact?: boolean;
}

/** A change of state, of `/v1/alerts/history`. */
export interface AlertChangeJson {
  time_ns: number;
  event: "pending" | "ended" | "firing" | "resolved";
  name: string;
  labels: Record<string, string>;
  source: "rule" | "received";
}

interface AlertChangesJson {
  history: AlertChangeJson[];
  /** Null if the list has all. */
  next: number | null;
}

export interface AlertHistory {
  range: [number, number];
  step: number;
  rows: AlertRow[];
}

/** Evaluations in a range: more would be less than a pixel. */
const MAX_STEPS = 720;
/** Changes of a response, at most. */
const MAX_CHANGES = 1_000;
const EVENTS = ["pending", "ended", "firing", "resolved"];

export async function fetchAlertHistory(
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<AlertHistory> {
  const step = columnStep(to - from, MAX_STEPS);
  const range = alignRange(from, to, step);
  const parameters = { ...rangeBetween(from, to), event: EVENTS, limit: MAX_CHANGES };
  const [result, changes] = await Promise.all([
    runQuery("ALERTS", "promql", range, step, signal),
    getJson<AlertChangesJson>("/v1/alerts/history", parameters, signal).catch(() => null),
  ]);
  const rows = toRows(result.series, step, to);
  return { range, step, rows: changes ? refineRows(rows, changes, step, [from, to]) : rows };
}

/** Rows with the exact times of the changes in the range, which are the newest first. */
export function refineRows(
  rows: readonly AlertRow[],
  { history, next }: AlertChangesJson,
  step: number,
  [from, to]: readonly [number, number],
): AlertRow[] {
  const known = next === null ? from : (history.at(-1)?.time_ns ?? 0) / 1e6;
  const changed = new Map<string, AlertRow>();
  for (const { time_ns, event, name, labels: all, source } of history.toReversed()) {
    if (source !== "rule") continue;
    const { alertname: _, ...labels } = all;
    const key = `${name} ${formatLabels(labels)}`;
    const row = changed.get(key) ?? { key, name, labels, periods: [], fired: 0, firingMs: 0 };
    changed.set(key, row);
    const [at, last] = [time_ns / 1e6, row.periods.at(-1)];
    if (last?.isOpen) [last.end, last.isOpen] = [at, false];
    if (event === "pending" || event === "firing") {
      row.periods.push({ state: event, start: at, end: to, isOpen: true });
    } else if (!last) {
      const state = event === "resolved" ? "firing" : "pending";
      row.periods.push({ state, start: known, end: at, isOpen: false });
    }
  }
  const merged = new Map(rows.map((row) => [row.key, row]));
  for (const [key, row] of changed) {
    const sampled = merged.get(key)?.periods ?? [];
    const last = row.periods.at(-1)!;
    const sampledEnd = sampled.at(-1)?.end ?? to;
    // An alert of a rule that was removed ends without a change.
    if (last.isOpen && sampledEnd >= last.start && sampledEnd < to - 2 * step) {
      [last.end, last.isOpen] = [sampledEnd, false];
    }
    const first = row.periods[0]!.start;
    const earlier = sampled.filter(({ end }) => end < first - step);
    row.isExact = earlier.length === 0;
    row.periods.unshift(...earlier);
    summarize(row);
    merged.set(key, row);
  }
  return latestFirst([...merged.values()]);
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
    summarize(row);
  }
  return latestFirst(all);
}

function summarize(row: AlertRow): void {
  const firing = row.periods.filter(({ state }) => state === "firing");
  row.fired = firing.length;
  row.firingMs = firing.reduce((sum, { start, end }) => sum + end - start, 0);
}

function latestFirst(rows: AlertRow[]): AlertRow[] {
  const end = (row: AlertRow) => Math.max(...row.periods.map((period) => period.end));
  return rows.sort((a, b) => end(b) - end(a) || (a.key < b.key ? -1 : 1));
}
