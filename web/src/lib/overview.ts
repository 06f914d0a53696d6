/** The overview: rows of metrics and services by the requests above their threshold. */

import { getJson, parseBracket, parseGap, type BracketJson, type Gap, type GapJson } from "./api";
import type { Bracket } from "./distribution";
import { write } from "./link";
import { PersistedValue } from "./persisted";
import { writeRectangle } from "./rectangle";
import { metricSelector } from "./selector";
import * as time from "./time";
import { formatCount, formatInput, formatShare, formatValue, parseThreshold } from "./unit";

const HOUR = 3_600e3;

export const GROUPS = ["services", "host", "topdeck"] as const;
export type RowGroup = (typeof GROUPS)[number];

/** The last hour as levels from 0 to 15, minute by minute from the lowest bin to the highest. */
export interface MiniHeatmapData {
  columns: number;
  bins: number;
  lower: number;
  upper: number;
  maxCount: number;
  levels: readonly number[];
  /** Columns with known gaps. */
  missing: readonly number[];
  /** Columns of which no data tells anything. */
  noData: readonly number[];
}

/** Users or sessions with a value above the threshold; null is unknown. */
export interface UserCounts {
  /** Label that tells them apart. */
  label: string;
  now: Bracket | null;
  today: Bracket | null;
  /** Why a number is unknown. */
  reason: string;
}

export type Unusual =
  { ratio: Bracket; days: number } | { ratio: null; reason: string; days: number };

export interface RowThreshold {
  value: number;
  origin: "user" | "slo" | "declared" | "p99" | "hourly_p99";
  /** Name of the SLO. */
  slo?: string | undefined;
  /** Milliseconds of the history that a p99 is of. */
  learnedFrom: number | null;
}

export type RowState = "affected" | "uncertain" | "usual" | "unknown";

/** The hour of today with most values above the threshold beyond those expected there. */
export interface WorstHour {
  start: number;
  end: number;
  above: Bracket;
  count: number;
}

export interface OverviewRow {
  /** The metric's name. */
  name: string;
  labels: Record<string, string>;
  /** Value of the label that names the service; empty if there is none. */
  service: string;
  unit: string;
  /** What the values are: `requests` or `values`. */
  noun: string;
  selector: string;
  /** Of the last five minutes. */
  state: RowState;
  stateToday: RowState;
  affectedNow: number | null;
  /** How many are expected above any threshold. */
  expectedNow: number;
  expectedToday: number;
  /** Null if no hour has significantly more than expected. */
  worstHour: WorstHour | null;
  aboveNow: Bracket | null;
  aboveToday: Bracket | null;
  /** Null if no label tells users apart. */
  users: UserCounts | null;
  countNow: number;
  countToday: number;
  threshold: RowThreshold | null;
  unusual: Unusual | null;
  rate: number;
  p50: Bracket | null;
  p99: Bracket | null;
  max: Bracket | null;
  latest: number | null;
  gaps: readonly Gap[];
  gapCount: number;
  heatmap: MiniHeatmapData | null;
}

export interface Overview {
  now: number;
  todayStart: number;
  total: number;
  /** Rows whose history has not been read yet. */
  incomplete: number;
  unranked: readonly { name: string; reason: string }[];
  rows: readonly OverviewRow[];
}

interface RowJson {
  name: string;
  labels: Record<string, string>;
  unit: string | null;
  counts: string;
  selector: string;
  state: RowState;
  state_today: RowState;
  affected_now: number | null;
  expected_now: number;
  expected_today: number;
  worst_hour: { start_ns: number; end_ns: number; above: BracketJson; count: number } | null;
  above_now: BracketJson | null;
  above_today: BracketJson | null;
  users: {
    label: string;
    now: BracketJson | null;
    today: BracketJson | null;
    reason?: string;
  } | null;
  count_now: number;
  count_today: number;
  threshold: {
    value: number;
    origin: RowThreshold["origin"];
    slo?: string;
    start_ns?: number;
    end_ns?: number;
  } | null;
  unusual: { ratio: BracketJson | null; reason?: string; days: number } | null;
  rate: number;
  p50: BracketJson | null;
  p99: BracketJson | null;
  max: BracketJson | null;
  latest_ns: number | null;
  gaps: GapJson[];
  gaps_total: number;
  heatmap: {
    columns: number;
    bins: number;
    lower: number;
    upper: number;
    max_count: number;
    missing: number[];
    no_data: number[];
    cells: string;
  } | null;
}

interface OverviewJson {
  now_ns: number;
  today_start_ns: number;
  total: number;
  incomplete: number;
  unranked: { name: string; reason: string }[];
  rows: RowJson[];
}

/** The first `limit` rows. Today begins at local midnight. */
export async function fetchOverview(
  group: RowGroup,
  limit: number,
  thresholds: Thresholds,
  now: number,
  signal?: AbortSignal,
): Promise<Overview> {
  const parameters = {
    group,
    limit,
    today_from: new Date(new Date(now).setHours(0, 0, 0, 0)).toISOString(),
    threshold: Object.entries(thresholds).map(([name, text]) => `${name}=${text}`),
  };
  const response = await getJson<OverviewJson>("/v1/overview", parameters, signal);
  return {
    now: response.now_ns / 1e6,
    todayStart: response.today_start_ns / 1e6,
    total: response.total,
    incomplete: response.incomplete,
    unranked: response.unranked,
    rows: response.rows.map(parseRow),
  };
}

function parseRow(row: RowJson): OverviewRow {
  const bracket = (json: BracketJson | null) => json && parseBracket(json);
  const { threshold, unusual, heatmap, users, worst_hour: worst } = row;
  const { start_ns, end_ns } = threshold ?? {};
  const hasHistory = start_ns !== undefined && end_ns !== undefined;
  return {
    name: row.name,
    labels: row.labels,
    service: Object.values(row.labels)[0] ?? "",
    unit: row.unit ?? "",
    noun: row.counts,
    selector: row.selector,
    state: row.state,
    stateToday: row.state_today,
    affectedNow: row.affected_now,
    expectedNow: row.expected_now,
    expectedToday: row.expected_today,
    worstHour: worst && {
      start: worst.start_ns / 1e6,
      end: worst.end_ns / 1e6,
      above: parseBracket(worst.above),
      count: worst.count,
    },
    aboveNow: bracket(row.above_now),
    aboveToday: bracket(row.above_today),
    users: users && {
      label: users.label,
      now: bracket(users.now),
      today: bracket(users.today),
      reason: users.reason ?? "",
    },
    countNow: row.count_now,
    countToday: row.count_today,
    threshold: threshold && {
      value: threshold.value,
      origin: threshold.origin,
      slo: threshold.slo,
      learnedFrom: hasHistory ? (end_ns - start_ns) / 1e6 : null,
    },
    unusual: unusual && {
      days: unusual.days,
      ...(unusual.ratio
        ? { ratio: parseBracket(unusual.ratio) }
        : { ratio: null, reason: unusual.reason ?? "unknown" }),
    },
    rate: row.rate,
    p50: bracket(row.p50),
    p99: bracket(row.p99),
    max: bracket(row.max),
    latest: row.latest_ns === null ? null : row.latest_ns / 1e6,
    gaps: row.gaps.map(parseGap),
    gapCount: row.gaps_total,
    heatmap: heatmap && {
      columns: heatmap.columns,
      bins: heatmap.bins,
      lower: heatmap.lower,
      upper: heatmap.upper,
      maxCount: heatmap.max_count,
      levels: [...heatmap.cells].map((digit) => parseInt(digit, 16)),
      missing: heatmap.missing,
      noData: heatmap.no_data,
    },
  };
}

/** The user's thresholds by metric, such as `250ms`. Stored in the browser. */
export type Thresholds = Readonly<Record<string, string>>;

const stored = new PersistedValue("localStorage", "topdeck-thresholds");

export function loadThresholds(): Thresholds {
  try {
    const json: unknown = JSON.parse(stored.get() ?? "{}");
    const pairs = Object.entries(json ?? {}).filter(([, text]) => typeof text === "string");
    return Object.fromEntries(pairs) as Thresholds;
  } catch {
    return {};
  }
}

/** Sets a threshold; an empty one is removed. */
export function storeThreshold(thresholds: Thresholds, name: string, text: string): Thresholds {
  const changed = Object.fromEntries(
    Object.entries({ ...thresholds, [name]: text }).filter(([, text]) => text !== ""),
  );
  stored.set(Object.keys(changed).length > 0 ? JSON.stringify(changed) : "");
  return changed;
}

/** Where the threshold comes from: `p99 of the last 7 d`. */
export function describeThreshold({ origin, slo, learnedFrom }: RowThreshold): string {
  if (origin === "user") return "yours";
  if (origin === "slo") return `SLO ${slo}`;
  if (origin === "declared") return "declared by the program";
  const statistic = origin === "hourly_p99" ? "median hourly p99" : "p99";
  return learnedFrom === null ? statistic : `${statistic} of ${roundDuration(learnedFrom)}`;
}

/** `12 sessions`, or `users unknown`. */
export function describeUsers({ label }: UserCounts, count: Bracket | null): string {
  const noun = label.startsWith("session") ? "session" : "user";
  if (!count) return `${noun}s unknown`;
  if (count.lower === count.upper) {
    return `${formatCount(count.estimate)} ${noun}${count.estimate === 1 ? "" : "s"}`;
  }
  return `${formatCount(count.lower)}–${formatCount(count.upper)} ${noun}s`;
}

/** What the number of users means, or why it is unknown. */
export function explainUsers({ label, reason }: UserCounts, count: Bracket | null): string {
  return count ? `Values of the label ${label} with one above the threshold` : reason;
}

/** A duration in its largest unit only. */
export function roundDuration(ms: number): string {
  return time.formatDuration(Math.max(ms, 0)).replace(/^(\d+ \S+) .*$/, "$1");
}

/** Whether the history of a row, its last hour included, has not been read yet. */
export function isUnread(row: OverviewRow): boolean {
  return row.unusual === null;
}

/** How unusual: `3.2×`, or why that is unknown. */
export function describeUnusual(unusual: Unusual | null): string {
  if (!unusual) return "not compared yet";
  if (unusual.ratio) return `${formatFactor(unusual.ratio.estimate)}×`;
  if (unusual.reason === "history too short") return `history too short (${unusual.days} of 3 d)`;
  return unusual.reason;
}

export function formatFactor(ratio: number): string {
  return ratio >= 100 ? formatCount(ratio) : ratio.toFixed(1);
}

/** Why the last five minutes are unknown. */
export function unknownReason(row: OverviewRow, now: number): string {
  if (row.latest === null) return "no data";
  if (row.countNow === 0) return `no data for ${roundDuration(now - row.latest)}`;
  return row.threshold === null && !isUnread(row) ? "no threshold yet" : "not read yet";
}

/** The heatmap of the row in Explore, in a range with data. */
export function exploreLink(row: OverviewRow, now: number): string {
  const isRecent = row.latest === null || now - row.latest < HOUR / 2;
  const latest = row.latest ?? now;
  const range = isRecent
    ? { from: "-1h", to: "now" }
    : time.rangeBetween(latest - HOUR, latest + 60e3);
  const threshold = row.threshold ? formatInput(row.threshold.value, row.unit) : "";
  return write({ view: "explore", settings: { selector: row.selector, threshold, ...range } });
}

/** The heatmap of the whole metric, all services, in the last hour. */
export function metricLink(row: OverviewRow): string {
  return write({ view: "explore", settings: { selector: metricSelector(row.name) } });
}

/** `08:00–09:00`. */
export function formatHour({ start, end }: WorstHour): string {
  return `${time.formatTick(start, HOUR)}–${time.formatTick(end, HOUR)}`;
}

/**
 * The worst hour of a row in Explore, between its neighbours, with the breakdown by label of the
 * values above the threshold.
 */
export function hourLink(row: OverviewRow, hour: WorstHour, now: number): string {
  const threshold = row.threshold ? formatInput(row.threshold.value, row.unit) : "";
  const low = parseThreshold(threshold, row.unit);
  const rectangle = { from: hour.start, to: hour.end, low: low ?? 0, high: Infinity };
  const settings = {
    selector: row.selector,
    threshold,
    ...time.rangeBetween(hour.start - HOUR, Math.min(hour.start + 2 * HOUR, now)),
    breakdown: low === null ? "" : writeRectangle(rectangle),
  };
  return write({ view: "explore", settings });
}

/** Whether a row has no value today and in the last hour, and nothing of it is left to read. */
export function hasNoValues(row: OverviewRow): boolean {
  return row.countToday === 0 && row.heatmap === null && !isUnread(row);
}

/** `service (metric)`. */
function nameOf(row: OverviewRow): string {
  return row.service ? `${row.service} (${row.name})` : row.name;
}

/** What was unusual today: how many rows, which one most, and its worst hour. */
export interface TodaySummary {
  text: string;
  row: OverviewRow;
  hour: WorstHour | null;
}

/** Null if nothing was. */
export function summariseToday({ rows, total }: Overview): TodaySummary | null {
  const isAffected = (row: OverviewRow) => row.stateToday === "affected" || row.worstHour !== null;
  const affected = rows.filter(isAffected);
  // Beyond the expected ones, in the day or in its worst hour, which the day may conceal.
  const beyond = ({ aboveToday, expectedToday, worstHour }: OverviewRow) =>
    Math.max(
      (aboveToday?.estimate ?? 0) - expectedToday,
      worstHour ? worstHour.above.estimate - worstHour.count / 100 : 0,
    );
  const [row] = affected.sort((a, b) => beyond(b) - beyond(a));
  if (!row) return null;
  const above = row.aboveToday?.estimate ?? 0;
  const limit = row.threshold ? formatValue(row.threshold.value, row.unit) : "";
  const many = `${formatCount(affected.length)} of ${formatCount(total)}`;
  const share = formatShare(row.countToday > 0 ? above / row.countToday : 0);
  const were = affected.length === 1 ? "was" : "were";
  // Fewer than expected in the whole day: only the hour says what happened.
  const day =
    row.stateToday === "affected" || !row.worstHour
      ? `, ${formatCount(above)} of ${formatCount(row.countToday)} ${row.noun} above ${limit} ` +
        `(${share}, 1 % expected).`
      : `, ${row.noun} above ${limit}.`;
  const isOver = affected.every(({ state }) => state === "usual");
  const when = isOver ? "Earlier today, not now," : "Today";
  const text = `${when} ${many} rows ${were} affected. Most: ${nameOf(row)}${day}`;
  return { text, row, hour: row.worstHour };
}

/** In their order, but what is not known now after what is, unless it was affected today. */
export function unknownLast(rows: readonly OverviewRow[]): OverviewRow[] {
  const rank = ({ state, stateToday }: OverviewRow) =>
    state === "unknown" && stateToday !== "affected" ? 1 : 0;
  return [...rows].sort((a, b) => rank(a) - rank(b));
}

/** One sentence: how many rows are affected, and the worst of them. */
export function summarise(overview: Overview): string {
  const { rows, total } = overview;
  const affected = rows.filter((row) => row.state === "affected");
  const count = (state: RowState) => rows.filter((row) => row.state === state).length;
  const [unknown, uncertain] = [count("unknown"), count("uncertain")];
  const doubt =
    (uncertain > 0 ? ` ${formatCount(uncertain)} uncertain.` : "") +
    (unknown > 0 ? ` ${formatCount(unknown)} unknown.` : "");
  const worst = affected[0];
  if (!worst) {
    const known = rows.length - unknown - uncertain;
    const all = total === 1 ? "The only row is" : `All ${formatCount(total)} rows are`;
    const many = known === total ? all : `${formatCount(known)} of ${formatCount(total)} rows are`;
    return known === 0
      ? `Nothing is known about the last 5 minutes.${doubt}`
      : `${many} normal now, in the last 5 minutes.${doubt}`;
  }
  const above = formatCount(worst.aboveNow?.estimate ?? 0);
  const limit = worst.threshold ? formatValue(worst.threshold.value, worst.unit) : "";
  const many = `${formatCount(affected.length)} of ${formatCount(total)}`;
  return (
    `${many} affected. Most: ${nameOf(worst)}, ${above} of ${formatCount(worst.countNow)} ` +
    `${worst.noun} above ${limit} in the last 5 minutes.${doubt}`
  );
}
