/** How many requests an alert affected, of how many. Times are in milliseconds. */

import { formatPeriod } from "./alertPeriod";
import type { AlertJson } from "./alerts";
import { fetchHistogram } from "./api";
import { isWide, type Bracket } from "./distribution";
import { describeExcess, excessState, type Expected } from "./excess";
import { exploreRange } from "./link";
import type { RuleThreshold, RuleRow } from "./rules";
import { addMatcher } from "./selector";
import * as time from "./time";
import {
  formatCount,
  formatInput,
  formatRange,
  formatShare,
  formatValue,
  isNumber,
  isTimeUnit,
} from "./unit";

/** A distribution and its threshold, such as `250ms`. */
export interface AffectedQuery extends RuleThreshold {
  /** The threshold as it is shown. */
  limit: string;
}

/** Requests above the threshold of a rule, in a time. */
export interface Affected {
  above: Bracket;
  total: number;
  expected: Expected;
  limit: string;
  from: number;
  to: number;
  /** The same threshold, series and time in Explore, where the counts are the same. */
  link: string;
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
    if (typeof threshold === "number" && unit) {
      const limit = formatValue(threshold, unit);
      return { threshold: formatInput(threshold, unit), selector, limit };
    }
    // The threshold of a share or a count has no unit: its limit is of the values.
    return limit === undefined ? null : { ...limitOf(limit), selector };
  }
  if (!rule?.distribution) return null;
  const { threshold, selector } = rule.distribution;
  return { ...limitOf(threshold), selector: withLabels(selector, labels, rule) };
}

/**
 * A limit such as `250ms` for the server, and as it is shown: rules of SLOs have `1000ms` for 1 s.
 * A minute of PromQL is `1m`.
 */
function limitOf(text: string): { threshold: string; limit: string } {
  const threshold = text.replace(/^([\d.]+)m$/, "$1min");
  const [, number = "", unit = ""] = /^(-?[\d.]+(?:e[+-]?\d+)?)(\D*)$/i.exec(threshold) ?? [];
  return { threshold, limit: isNumber(number) ? formatValue(Number(number), unit) : text };
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

/** Ends of a range in which requests are counted: those of columns in Explore. */
const COUNTED_STEP = 60e3;

/** Requests above the threshold; null if there were no requests. */
export async function fetchAffected(
  { selector, threshold, limit }: AffectedQuery,
  [start, end]: readonly [number, number],
  signal: AbortSignal,
): Promise<Affected | null> {
  const [from, to] = time.alignRange(start, Math.max(end, start + 1), COUNTED_STEP);
  const ask = (above: string[] = []) =>
    fetchHistogram(selector, time.rangeBetween(from, to), { above }, signal);
  // A number of PromQL is in seconds, whatever unit of time the series have.
  const text = isNumber(threshold) && isTimeUnit((await ask()).unit) ? `${threshold}s` : threshold;
  const { above: counts, distribution } = await ask([text]);
  const [found, total] = [counts[0], distribution.count];
  if (!found || total <= 0) return null;
  const link = exploreRange(selector, text, from, to);
  return { above: found.count, expected: found.expected, total, limit, from, to, link };
}

/** `120 of 4,000 requests above 250 ms (3 %), 2026-11-26 12:00:00 to 12:05:00`. */
export function describeAffected({ above, total, limit, from, to }: Affected): string {
  const isUncertain = isWide(above.lower, above.upper);
  const isExact = above.lower === above.upper;
  const bounds = isExact ? "" : ` (${formatCount(above.lower)}–${formatCount(above.upper)})`;
  const count = isUncertain
    ? formatRange(above.lower, above.upper, "")
    : formatCount(above.estimate) + bounds;
  const share = isUncertain ? "buckets too wide to tell" : formatShare(above.estimate / total);
  const requests = `${formatCount(total)} requests above ${limit}`;
  return `${count} of ${requests} (${share}), ${formatPeriod(from, to)}`;
}

/** How sure an alert's excess is: `0.5 % (SLO payments) expected: more than chance explains …`. */
export function describeCertainty({ above, total, expected }: Affected): string {
  return describeExcess(excessState(above, total, expected), expected);
}
