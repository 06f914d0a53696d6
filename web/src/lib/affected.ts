/** How many requests an alert affected, of how many. Times are in milliseconds. */

import { formatPeriod } from "./alertPeriod";
import type { AlertJson } from "./alerts";
import { isWide, type Bracket } from "./distribution";
import { runQuery, type QueryResult } from "./query";
import type { RuleThreshold, RuleRow } from "./rules";
import { addMatcher } from "./selector";
import * as time from "./time";
import {
  formatCount,
  formatRange,
  formatShare,
  formatValue,
  isNumber,
  isTimeUnit,
  nanosecondsOf,
} from "./unit";

/** A distribution and its threshold in PromQL. */
export interface AffectedQuery extends RuleThreshold {
  /** The threshold as it is shown. */
  limit: string;
}

/** Requests above the threshold of a rule, in a time. */
export interface Affected {
  above: Bracket;
  total: number;
  limit: string;
  from: number;
  to: number;
}

/** How far a rule without a range looks back. */
const LOOKBACK_MS = 5 * 60e3;

/**
 * The distribution of an alert and its threshold: of own rules those of the criterion, of others
 * those that the query names. Null if there is none.
 */
export function distributionOf(
  labels: Readonly<Record<string, string>>,
  rule: RuleRow | undefined,
  alert?: AlertJson,
): AffectedQuery | null {
  const criterion = alert?.criterion;
  if (alert && criterion) {
    const { text, threshold, unit, limit, forecast } = criterion;
    const isAbove = text.includes(" above ") && text.includes(` of ${alert.query} within `);
    if (!isAbove || forecast !== undefined) return null;
    const selector = withLabels(alert.query, labels, rule);
    // A number is in the unit of the series.
    if (typeof threshold === "number" && unit) {
      return { threshold: String(threshold), selector, limit: formatValue(threshold, unit) };
    }
    // The threshold of a share or a count has no unit: its limit is of the values.
    return limit === undefined ? null : { ...limitOf(limit), selector };
  }
  if (!rule?.distribution) return null;
  const { threshold, selector } = rule.distribution;
  // Rules of SLOs have `1000ms` for 1 s.
  const { limit } = limitOf(threshold);
  return { threshold, selector: withLabels(selector, labels, rule), limit };
}

/** A limit such as `250ms` in PromQL, which knows neither `us` nor `min`, and as it is shown. */
function limitOf(text: string): { threshold: string; limit: string } {
  const [, number = text, unit = ""] = /^(-?[\d.]+(?:e[+-]?\d+)?)(\D+)$/i.exec(text) ?? [];
  const limit = isNumber(number) ? formatValue(Number(number), unit) : text;
  if (!isTimeUnit(unit)) return { threshold: number, limit };
  return { threshold: `1ms * ${(Number(number) * nanosecondsOf(unit)) / 1e6}`, limit };
}

/** The series of an alert: labels that its rule adds are not theirs. */
function withLabels(
  selector: string,
  labels: Readonly<Record<string, string>>,
  rule: RuleRow | undefined,
): string {
  const own = Object.entries(labels).filter(
    ([name]) => name !== "alertname" && !(name in (rule?.labels ?? {})),
  );
  return own.reduce((text, [name, value]) => addMatcher(text, name, value), selector);
}

/** How far a rule looks back: its longest range, `[5m]` or `within 5 min`. */
export function lookbackOf(query: string): number {
  const found = [...query.matchAll(/(?:\[|within )((?:\d+ ?(?:min|[smhdw]) ?)+)/g)];
  const ranges = found.map(([, range]) => -(time.parseTime(`-${range}`, 0) ?? 0));
  return ranges.length > 0 ? Math.max(...ranges) : LOOKBACK_MS;
}

/** Numbers of active alerts follow with each half minute. */
const COUNT_MS = 30_000;

/**
 * The time in which the requests of an active alert are counted, the same wherever it is shown:
 * from its window before it began.
 */
export function countedRange(
  since: number,
  query: string,
  now: number,
): { from: number; to: number } {
  const to = Math.max(Math.floor(now / COUNT_MS) * COUNT_MS, since);
  return { from: since - lookbackOf(query), to };
}

/** Requests above the threshold; null if there were no requests. */
export async function fetchAffected(
  { selector, threshold, limit }: AffectedQuery,
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<Affected | null> {
  const [start, end] = [Math.floor(from / 1e3) * 1e3, Math.ceil(to / 1e3) * 1e3];
  const span = Math.max(end - start, 1e3);
  const values = `sum(exact_increase(${selector}[${span}ms]))`;
  // A range of one column ends at its evaluation.
  const ask = (query: string) => runQuery(query, "promql", [start, start + span], span, signal);
  const [above, total] = await Promise.all([
    ask(`histogram_count_above(${threshold}, ${values})`),
    ask(`histogram_count(${values})`),
  ]);
  const [bad, all] = [lastBracket(above), lastBracket(total)];
  if (!bad || !all || all.estimate <= 0) return null;
  return { above: bad, total: all.estimate, limit, from: start, to: start + span };
}

function lastBracket({ series }: QueryResult): Bracket | null {
  const value = series[0]?.points.at(-1)?.value;
  return value && "estimate" in value ? value : null;
}

/** `120 of 4,000 requests above 250 ms (3.0 %), 2026-11-26 12:00:00 to 12:05:00`. */
export function describeAffected({ above, total, limit, from, to }: Affected): string {
  const isUncertain = isWide(above.lower, above.upper);
  const count = isUncertain
    ? formatRange(above.lower, above.upper, "")
    : formatCount(above.estimate);
  const share = isUncertain ? "buckets too wide to tell" : formatShare(above.estimate / total);
  const requests = `${formatCount(total)} requests above ${limit}`;
  return `${count} of ${requests} (${share}), ${formatPeriod(from, to)}`;
}
