/** SLOs: their budgets and history, and what other thresholds would have attained. */

import { getJson } from "./api";
import type { Bracket } from "./distribution";
import { formatDuration } from "./time";
import { formatShare } from "./unit";

export type BudgetState = "remaining" | "uncertain" | "spent" | "unknown";

export interface EventsJson {
  bad: Bracket;
  total: number;
}

export interface BudgetJson {
  from_ns: number;
  to_ns: number;
  attained: Bracket | null;
  remaining: Bracket | null;
  events: EventsJson;
  /** Events that may be bad. */
  allowed: number;
  remaining_uncorrected: Bracket | null;
  uncorrected: EventsJson;
  /** Time that corrections take out. Absent from a server of an earlier version. */
  corrected_ns?: number;
  last_hour: EventsJson;
  missing_ns: number;
  gaps_total: number;
  unit: string | null;
  threshold_value: number | null;
}

export interface CorrectionJson {
  from_ns: number;
  to_ns: number;
  reason: string;
}

export interface SloJson {
  name: string;
  description: string;
  kind: "threshold" | "ratio";
  selector?: string;
  threshold?: string;
  good?: string;
  bad?: string;
  total?: string;
  objective: number;
  period: string;
  corrections: CorrectionJson[];
  state: BudgetState;
  budget: BudgetJson | null;
  /** Null before the first computation. */
  computed_ns?: number | null;
  error: string | null;
  /** Why it has no data. Absent from a server of an earlier version. */
  warning?: string | null;
  alerts: { firing: number; pending: number; unknown: number };
}

/** Response of `/v1/slos`. */
export interface SlosJson {
  time_ns: number;
  slos: SloJson[];
}

export interface SloPointJson {
  time_ns: number;
  remaining: Bracket | null;
  bad: Bracket;
  total: number;
  has_gap: boolean;
}

export interface SloDayJson {
  start_ns: number;
  end_ns: number;
  bad: Bracket;
  total: number;
  burn_rate: Bracket | null;
  missing_ns: number;
  corrected_ns: number;
}

export interface CurvePointJson {
  threshold: number;
  attained: Bracket;
}

export interface BurnJson {
  window: string;
  severity: string;
  factor: number;
  formula: string;
  long_ns: number;
  short_ns: number;
  long: Bracket | null;
  short: Bracket | null;
  is_burning: boolean | null;
}

/** Response of `/v1/slo`. */
export interface SloReportJson extends SloJson {
  from_ns: number;
  to_ns: number;
  points?: SloPointJson[];
  days?: SloDayJson[];
  curve?: CurvePointJson[];
  threshold_of_objective?: Bracket | null;
  burn?: BurnJson[];
  people?: { affected: Bracket; total: number; is_counted: boolean } | null;
}

export function fetchSlos(signal: AbortSignal): Promise<SlosJson> {
  return getJson<SlosJson>("/v1/slos", {}, signal);
}

export interface SloQuestion {
  name: string;
  /** Days before now. */
  days: number;
  /** Empty: that of the SLO. */
  threshold: string;
  objective: string;
}

export function fetchSlo(
  { name, days, threshold, objective }: SloQuestion,
  signal: AbortSignal,
): Promise<SloReportJson> {
  const other = {
    threshold: threshold || undefined,
    objective: objective || undefined,
  };
  return getJson<SloReportJson>("/v1/slo", { name, from: `-${days}d`, ...other }, signal);
}

/** Days of a period such as `7d`, `4w`, `1y` or `720h`, at least one; 30 if it is another text. */
export function periodDays(period: string): number {
  const found = /^(\d+(?:\.\d+)?)\s*(min|h|d|w|y)$/.exec(period);
  const days = { min: 1 / 1440, h: 1 / 24, d: 1, w: 7, y: 365 };
  if (!found) return 30;
  return Math.max(1, Math.ceil(Number(found[1]) * days[found[2] as keyof typeof days]));
}

/** Without the beginning of a list before the first events: the SLO is younger than the range. */
export function sinceFirstEvents<T extends { total: number }>(list: readonly T[]): T[] {
  const first = list.findIndex(({ total }) => total > 0);
  return first < 0 ? [...list] : list.slice(first);
}

/** Time of the first events of a report, to its hour or day; null if it has none. */
export function firstEvents({ points = [], from_ns }: SloReportJson): number | null {
  const first = points.findIndex(({ total }) => total > 0);
  return first < 0 ? null : (points[first - 1]?.time_ns ?? from_ns) / 1e6;
}

/**
 * State of a burn-rate alert, with data of `knownMs` milliseconds. Its limit is far above the rate
 * of 1 that spends the budget, so a budget may be spent although no alert fires.
 */
export function describeBurn(burn: BurnJson, knownMs = Infinity): string {
  const state = describeRate(burn);
  const longMs = burn.long_ns / 1e6;
  if (!(knownMs < longMs)) return state;
  const missing = `window not full yet: ${formatDuration(knownMs)} of ${formatDuration(longMs)}`;
  return burn.is_burning === null ? missing : `${state}; ${missing}`;
}

function describeRate({ is_burning, severity, factor, long }: BurnJson): string {
  if (is_burning === null) return "unknown: no events";
  if (is_burning) return `above the limit (${severity})`;
  if (!long || long.estimate <= 1) return "within the budget";
  return long.estimate > factor
    ? "spends the budget; not in the short window, or too few events to alert"
    : "spends the budget; below the limit";
}

/** `99.9%` or `0.999` as a share; null if it is invalid. */
export function parseObjective(text: string): number | null {
  const found = /^(\d+\.?\d*|\.\d+)\s*(%?)$/.exec(text.trim());
  if (!found) return null;
  const share = Number(found[1]) / (found[2] ? 100 : 1);
  return share > 0 && share < 1 ? share : null;
}

/** An objective: `99.9 %`. It has as many digits as it was written with. */
export function formatObjective(share: number): string {
  return `${Number((share * 100).toPrecision(10))} %`;
}

/** What the state says. A word, not only a colour. */
export const STATE_TEXTS: Readonly<Record<BudgetState, string>> = {
  remaining: "budget left",
  uncertain: "uncertain",
  spent: "budget spent",
  unknown: "unknown",
};

const groupDigits = (text: string) => text.replace(/\B(?=(\d{3})+$)/g, ",");

/** A share of the budget: `72 %`, `−1,150 %`. */
export function formatRemaining(share: number): string {
  const percent = share * 100;
  const text = Math.abs(percent) >= 10 ? groupDigits(percent.toFixed(0)) : percent.toFixed(1);
  return `${text.replace(/^-/, "−").replace(/\.0$/, "")} %`;
}

/** Without the points of which nothing is known at the beginning and at the end. */
export function knownPoints(points: readonly SloPointJson[]): SloPointJson[] {
  const isKnown = ({ remaining }: SloPointJson) => remaining !== null;
  return points.slice(Math.max(points.findIndex(isKnown), 0), points.findLastIndex(isKnown) + 1);
}

/** Whether a point and the one after it have no events. */
export function isSilentAround(points: readonly SloPointJson[], at: number): boolean {
  return points[at]!.total === 0 && (points[at + 1]?.total ?? 0) === 0;
}

/** SLOs whose budget is certainly spent, the least left first. */
export function spentFirst(slos: readonly SloJson[]): SloJson[] {
  const left = ({ budget }: SloJson) => budget?.remaining?.estimate ?? 0;
  const spent = slos.filter(({ state }) => state === "spent");
  return spent.sort((a, b) => left(a) - left(b));
}

/** The SLO whose budget has the least left; null if none is known. */
export function leastBudget(slos: readonly SloJson[]): SloJson | null {
  const left = ({ budget }: SloJson) => budget?.remaining?.estimate;
  const known = slos.filter((slo) => left(slo) !== undefined);
  return known.reduce<SloJson | null>((a, b) => (a && left(a)! <= left(b)! ? a : b), null);
}

/** `checkout −150 % left`. */
export function describeBudget({ name, budget }: SloJson): string {
  const remaining = budget?.remaining;
  return remaining ? `${name} ${formatRemaining(remaining.estimate)} left` : name;
}

/** The estimate, and the bounds if they differ: `72 % (70 % to 75 %)`. */
export function formatBounds(of: Bracket | null, format: (value: number) => string): string {
  if (!of) return "unknown";
  const [lower, estimate, upper] = [of.lower, of.estimate, of.upper].map(format);
  return lower === upper ? estimate! : `${estimate} (${lower} to ${upper})`;
}

export function formatAttained(of: Bracket | null): string {
  return formatBounds(of, formatShare);
}

/** What an objective would have been with a share: missed and attained only if that is certain. */
export function verdict(attained: Bracket, objective: number): "attained" | "missed" | "uncertain" {
  if (attained.lower >= objective) return "attained";
  return attained.upper < objective ? "missed" : "uncertain";
}

/** The point of a curve nearest to a threshold, on a logarithmic scale. */
export function nearestThreshold(curve: readonly CurvePointJson[], threshold: number): number {
  let nearest = 0;
  const distance = (at: number) => Math.abs(Math.log(curve[at]!.threshold / threshold));
  for (let at = 1; at < curve.length; at++) if (distance(at) < distance(nearest)) nearest = at;
  return nearest;
}

/** What is good, in words. */
export function describeIndicator(slo: SloJson): string {
  if (slo.kind === "threshold") return `${slo.selector} at most ${slo.threshold}`;
  return slo.good ? `${slo.good} of ${slo.total}` : `${slo.total} without ${slo.bad}`;
}
