/** Checks (probes): their state, availability, and durations by phase. Times in milliseconds. */

import { getJson } from "./api";
import { Distribution } from "./distribution";
import { runQuery, type QueryPoint, type QueryResult } from "./query";
import { quoted } from "./selector";
import { sortTargets, type TargetJson } from "./sources";
import { alignRange, columnStep } from "./time";
import { formatCount } from "./unit";

/** Phases of an attempt, in their order. `total` is measured from the scheduled start. */
export const PHASES = ["total", "resolve", "connect", "tls", "wait", "read"] as const;
export type CheckPhase = (typeof PHASES)[number];

export const PHASE_TEXTS: Readonly<Record<CheckPhase, string>> = {
  total: "total",
  resolve: "resolve (name)",
  connect: "connect",
  tls: "TLS",
  wait: "wait (first byte)",
  read: "read",
};

/** Columns of the availability: more would be less than a pixel. */
const MAX_STEPS = 288;

/** Attempts in a time: none is unknown, not up. */
export type AttemptState = "up" | "partly" | "down" | "unknown";

/** A time in which the attempts had one state. */
export interface AttemptPeriod {
  state: AttemptState;
  start: number;
  end: number;
  text: string;
}

/** The attempts of a check in a range. */
export interface CheckAvailability {
  succeeded: number;
  failed: number;
  periods: AttemptPeriod[];
  /** Milliseconds without an attempt. */
  unknownMs: number;
}

/** A check of the settings, or one of an earlier time, which has data only. */
export interface CheckRow {
  name: string;
  target: TargetJson | null;
  availability: CheckAvailability | null;
  /** HTTP status of the last attempt, and when the server's certificate expires. */
  httpStatus: number | null;
  certificateExpiry: number | null;
}

export interface ChecksState {
  now: number;
  range: [number, number];
  rows: CheckRow[];
}

export const durationSelector = (check: string, phase: string): string =>
  `probe_duration{check=${quoted(check)}, phase=${quoted(phase)}}`;

interface ChecksStatusJson {
  now_ns: number;
  targets?: TargetJson[];
}

/** All checks: those that are down first, then unknown ones, and those of an earlier time last. */
export async function fetchChecks(
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<ChecksState> {
  const step = columnStep(to - from, MAX_STEPS);
  const range = alignRange(from, to, step);
  const counts =
    "sum by (check, outcome) " +
    `(histogram_count(exact_increase(probe_duration{phase="total"}[${step}ms])))`;
  const latest = (metric: string) => runQuery(metric, "promql", [to - step, to], step, signal);
  const [status, attempts, httpStatuses, expiries] = await Promise.all([
    getJson<ChecksStatusJson>("/v1/status", {}, signal),
    runQuery(counts, "promql", range, step, signal),
    latest("probe_http_status_code"),
    latest("probe_ssl_earliest_cert_expiry"),
  ]);
  const now = status.now_ns / 1e6;
  const targets = (status.targets ?? []).filter(({ kind }) => kind === "check");
  const found = new Set(attempts.series.flatMap(({ labels }) => labels["check"] ?? []));
  for (const { name } of targets) found.delete(name);
  const numberOf = ({ series }: QueryResult, name: string): number | null => {
    const value = series.find(({ labels }) => labels["check"] === name)?.points.at(-1)?.value;
    return value && "estimate" in value ? value.estimate : null;
  };
  const toRow = (name: string, target: TargetJson | null): CheckRow => {
    const of = (outcome: string) =>
      attempts.series.find(
        ({ labels }) => labels["check"] === name && labels["outcome"] === outcome,
      )?.points ?? [];
    const expiry = numberOf(expiries, name);
    const ended: [number, number] = [range[0], Math.min(range[1], now)];
    return {
      name,
      target,
      availability: toAvailability(of("success"), of("failed"), ended, step),
      httpStatus: numberOf(httpStatuses, name),
      certificateExpiry: expiry === null ? null : expiry * 1e3,
    };
  };
  return {
    now,
    range,
    rows: [
      ...sortTargets(targets).map((target) => toRow(target.name, target)),
      ...[...found].sort().map((name) => toRow(name, null)),
    ],
  };
}

function countsByTime(points: readonly QueryPoint[]): Map<number, number> {
  return new Map(
    points.map(({ time, value }) => [
      Math.round(time),
      value && "estimate" in value ? value.estimate : 0,
    ]),
  );
}

/** Availability from the numbers of attempts that ended in each step. Null without any. */
export function toAvailability(
  success: readonly QueryPoint[],
  failure: readonly QueryPoint[],
  [from, to]: readonly [number, number],
  step: number,
): CheckAvailability | null {
  const [succeeded, failed] = [countsByTime(success), countsByTime(failure)];
  const all: CheckAvailability = { succeeded: 0, failed: 0, periods: [], unknownMs: 0 };
  for (let start = from; start < to; start += step) {
    const end = start + step;
    const [good, bad] = [succeeded.get(Math.round(end)) ?? 0, failed.get(Math.round(end)) ?? 0];
    all.succeeded += good;
    all.failed += bad;
    const state: AttemptState =
      good + bad === 0 ? "unknown" : bad === 0 ? "up" : good === 0 ? "down" : "partly";
    // The step that has not ended may have its first attempt yet.
    if (state === "unknown" && end > to) continue;
    if (state === "unknown") all.unknownMs += step;
    const last = all.periods.at(-1);
    if (last && last.state === state && last.end === start) last.end = end;
    else all.periods.push({ state, start, end, text: "" });
  }
  return all.succeeded + all.failed === 0 ? null : all;
}

/** The share of successful attempts; null if nothing is known. */
export function availabilityShare(of: CheckAvailability | null): number | null {
  return of ? of.succeeded / (of.succeeded + of.failed) : null;
}

/** `2 of 8,640 attempts failed`. */
export function describeAttempts(of: CheckAvailability | null): string {
  if (!of) return "no attempt in this range";
  return `${formatCount(of.failed)} of ${formatCount(of.succeeded + of.failed)} attempts failed`;
}

/** What a check is now. Without a recent attempt its last state is not the present one. */
export type CheckCondition = "up" | "down" | "unknown" | "stale" | "removed";

export function conditionOfCheck({ target }: CheckRow, now: number): CheckCondition {
  if (!target) return "removed";
  if (target.state === "unknown" || target.last_ns === null) return "unknown";
  return isOverdue(target, now) ? "stale" : target.state;
}

/** Intervals without a result after which an attempt is missing. */
const OVERDUE_INTERVALS = 3;

/** Whether a result is older than three intervals and the longest attempt. */
export function isOverdue(target: TargetJson, now: number): boolean {
  if (target.last_ns === null) return false;
  const limit = OVERDUE_INTERVALS * target.interval_ns + target.timeout_ns;
  return now - target.last_ns / 1e6 > limit / 1e6;
}

/** How many checks are in which condition: `1 down, 2 up`. */
export function describeConditions(conditions: readonly CheckCondition[]): string {
  const order = ["down", "stale", "unknown", "up", "removed"] as const;
  const names = { stale: "without a recent result", removed: "not in the settings" };
  return order
    .map((one) => [conditions.filter((other) => other === one).length, one] as const)
    .filter(([count]) => count > 0)
    .map(([count, one]) => `${formatCount(count)} ${names[one as keyof typeof names] ?? one}`)
    .join(", ");
}

/** Durations of a phase in a range, all outcomes together. */
export interface PhaseDurations {
  phase: CheckPhase;
  distribution: Distribution;
}

/** Phases with data, in their order. Failed attempts count: users wait for slow failures, too. */
export async function fetchPhases(
  check: string,
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<{ unit: string; phases: PhaseDurations[] }> {
  const length = Math.max(Math.round(to - from), 1);
  const increase = `exact_increase(probe_duration{check=${quoted(check)}}[${length}ms])`;
  const query = `sum by (phase) (${increase})`;
  const result = await runQuery(query, "promql", [from, from + length], length, signal);
  const phases = PHASES.flatMap((phase) => {
    const found = result.series.find(({ labels }) => labels["phase"] === phase);
    const value = found?.points.at(-1)?.value;
    return value instanceof Distribution && !value.isEmpty ? [{ phase, distribution: value }] : [];
  });
  return { unit: result.unit, phases };
}
