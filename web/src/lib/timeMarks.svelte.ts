/**
 * What happened at a time, for every time axis: deploys and other annotations, changes of series,
 * and alerts that fire. Charts of the same range share one request. A chart of a metric has only
 * the alerts whose rules read it.
 */

import { fetchAlertHistory } from "./alertHistory";
import { fetchAnnotations } from "./api";
import { showsAlert } from "./chartAlerts";
import type { MetricLabels } from "./queryMetrics";
import { fetchRules, ruleOf, type RuleRow } from "./rules";
import { formatDateTime, rangeBetween } from "./time";

export type MarkKind = "note" | "change" | "alert";

export interface TimeMark {
  kind: MarkKind;
  text: string;
  start: number;
  end: number;
  /** Of alerts. */
  alert?: { name: string; labels: Record<string, string> };
}

/** Custom properties of app.css. */
export const MARK_COLOURS: Readonly<Record<MarkKind, string>> = {
  note: "--note",
  change: "--warn",
  alert: "--alert",
};

/** How long marks are not asked for again. */
const FRESH_MS = 5_000;
/** How long rules are not asked for again. */
const RULES_FRESH_MS = 60_000;
/** Ranges that are remembered. */
const MAX_RANGES = 16;
/** Marks of alerts: more would hide the chart. */
const MAX_ALERTS = 100;
/** Marks of a chart that are told one by one. */
const MAX_DESCRIBED = 8;
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
  const alerts = history.rows.flatMap(({ name, labels, periods }) =>
    periods
      .filter(({ state }) => state === "firing")
      .map(({ start, end }): TimeMark => {
        return { kind: "alert", text: `${name} fires`, start, end, alert: { name, labels } };
      }),
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

let latestRules: { at: number; rules: Promise<readonly RuleRow[]> } | null = null;

function sharedRules(): Promise<readonly RuleRow[]> {
  if (latestRules && Date.now() - latestRules.at < RULES_FRESH_MS) return latestRules.rules;
  const rules = fetchRules(AbortSignal.timeout(30_000)).then(({ rows }) => rows);
  latestRules = { at: Date.now(), rules };
  rules.catch(() => (latestRules = null));
  return rules;
}

/** Marks without the alerts of other metrics than those of a selector or a query, or than one. */
export function marksOf(
  marks: readonly TimeMark[],
  shown: string | MetricLabels,
  rules: readonly RuleRow[],
): TimeMark[] {
  return marks.filter(({ alert }) => {
    if (!alert) return true;
    const rule = ruleOf(rules, alert);
    return rule !== undefined && showsAlert(shown, { query: rule.query, labels: alert.labels });
  });
}

async function chartMarks(
  from: number,
  to: number,
  shown: string | MetricLabels,
): Promise<TimeMark[]> {
  const marks = await sharedMarks(from, to);
  if (shown === "" || !marks.some(({ alert }) => alert)) return marks;
  return marksOf(marks, shown, await sharedRules());
}

/** Marks that begin in a range. */
export function marksWithin(
  marks: readonly TimeMark[],
  [from, to]: readonly [number, number],
): TimeMark[] {
  return marks.filter(({ start }) => start >= from && start <= to);
}

/** `2026-11-27 12:30:00: deploy 1.5`. */
export function describeMark({ start, text }: TimeMark): string {
  return `${formatDateTime(start)}: ${text}`;
}

/** Marks that begin in a range, for people who do not see them; empty without any. */
export function describeMarks(
  marks: readonly TimeMark[],
  range: readonly [number, number],
): string {
  const shown = marksWithin(marks, range);
  const texts = shown.slice(-MAX_DESCRIBED).map(describeMark);
  const omitted = shown.length - texts.length;
  return [...texts, ...(omitted > 0 ? [`${omitted} earlier marks`] : [])].join("; ");
}

/** Marks of a chart's range. */
export class TimeMarks {
  value = $state.raw<TimeMark[]>([]);

  /**
   * Must be called while a component initialises. `shown` is the selector or the query of the
   * chart, or its metric; a chart without one has all alerts.
   */
  constructor(
    range: () => readonly [number, number],
    shown: () => string | MetricLabels = () => "",
  ) {
    $effect(() => {
      const [from, to] = range();
      let isCurrent = true;
      chartMarks(from, to, shown()).then(
        (marks) => isCurrent && (this.value = marks),
        () => {},
      );
      return () => (isCurrent = false);
    });
  }
}
