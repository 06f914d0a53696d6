/** The overview: rows of metrics and services by the requests above their threshold. */

import { getJson, parseBracket, parseGap, type BracketJson, type Gap, type GapJson } from "./api";
import type { Bracket } from "./distribution";
import { exploreRange, write } from "./link";
import { PersistedValue } from "./persisted";
import { writeRectangle } from "./rectangle";
import { metricSelector } from "./selector";
import * as time from "./time";
import { formatCount, formatInput, parseThreshold } from "./unit";

const HOUR = 3_600e3;
/** Hour of the clock before which the day before belongs to a day: at 00:17 22:00 is no history. */
const YOUNG_DAY_END = 6;
/** "Now": the last five minutes. */
const RECENT = 5 * 60e3;

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
  | { ratio: Bracket; days: number }
  // `daysMin`: days with values from which on it is known, if there are too few.
  | { ratio: null; reason: string; days: number; daysMin: number | null };

export interface RowThreshold {
  value: number;
  origin: "user" | "slo" | "slo_of_part" | "declared" | "p99" | "hourly_p99";
  /** Name of the SLO. */
  slo?: string | undefined;
  /** Name of the SLO of some of the row's series. */
  sloOfPart?: string | undefined;
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
  /** Share above the threshold as a ratio to the expected one; the lower bound is one of chance. */
  burnRate: Bracket;
  /** The hour with those next to it that are not much better. */
  period: AffectedPeriod;
}

export interface AffectedPeriod {
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
  /** When it began, within these bounds; null if it is not affected now, or unknown. */
  affectedSince: { start: number; end: number } | null;
  burnRateNow: Bracket | null;
  /** Which share is expected above the threshold, and how many. */
  expectedShare: number;
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

/** Numbers of all rows, and the worst of them, whether they are shown or not. */
export interface OverviewSummary {
  /** Rows in each state of the last five minutes. */
  affected: number;
  uncertain: number;
  usual: number;
  unknown: number;
  /** Those of the unknown ones that have values now, but no threshold yet. */
  withoutThreshold: number;
  /** Rows that were affected earlier today, but are not now, and those of them that are usual. */
  affectedEarlier: number;
  usualAgain: number;
  /**
   * By what is certain of the burn rate: a small service of which half fails comes before a large
   * one that is a little slower than usual. Without heatmaps.
   */
  worstNow: readonly OverviewRow[];
  worstEarlier: readonly OverviewRow[];
}

export interface Overview {
  now: number;
  todayStart: number;
  total: number;
  /** Rows whose history has not been read yet. */
  incomplete: number;
  summary: OverviewSummary;
  /** Number of values from which a threshold is learned. */
  thresholdValues: number;
  unranked: readonly { name: string; reason: string }[];
  rows: readonly OverviewRow[];
}

interface PeriodJson {
  start_ns: number;
  end_ns: number;
  above: BracketJson;
  count: number;
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
  affected_since: { start_ns: number; end_ns: number } | null;
  burn_rate_now: BracketJson | null;
  expected_share: number;
  expected_now: number;
  expected_today: number;
  worst_hour: (PeriodJson & { burn_rate: BracketJson; period?: PeriodJson }) | null;
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
    slo_of_part?: string;
    start_ns?: number;
    end_ns?: number;
  } | null;
  unusual: {
    ratio: BracketJson | null;
    reason?: string;
    days: number;
    days_min?: number;
  } | null;
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
  summary: {
    affected: number;
    uncertain: number;
    usual: number;
    unknown: number;
    without_threshold: number;
    affected_earlier: number;
    usual_again: number;
    worst_now: RowJson[];
    worst_earlier: RowJson[];
  };
  threshold_values_min: number;
  unranked: { name: string; reason: string }[];
  rows: RowJson[];
}

/** Where today begins: at local midnight, before six o'clock at the one before. */
export function startOfToday(now: number): number {
  const midnight = new Date(now);
  midnight.setHours(0, 0, 0, 0);
  // By the clock: where it changes, six hours after midnight are not six o'clock.
  if (new Date(now).getHours() < YOUNG_DAY_END) midnight.setDate(midnight.getDate() - 1);
  return midnight.getTime();
}

/** Whether yesterday belongs to the day of an overview. */
export function hasYesterday({ now, todayStart }: Pick<Overview, "now" | "todayStart">): boolean {
  return todayStart < new Date(now).setHours(0, 0, 0, 0);
}

/** The first `limit` rows. */
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
    today_from: new Date(startOfToday(now)).toISOString(),
    threshold: Object.entries(thresholds).map(([name, text]) => `${name}=${text}`),
  };
  const response = await getJson<OverviewJson>("/v1/overview", parameters, signal);
  return {
    now: response.now_ns / 1e6,
    todayStart: response.today_start_ns / 1e6,
    total: response.total,
    incomplete: response.incomplete,
    summary: parseSummary(response.summary),
    thresholdValues: response.threshold_values_min,
    unranked: response.unranked,
    rows: response.rows.map(parseRow),
  };
}

function parseSummary(json: OverviewJson["summary"]): OverviewSummary {
  const { affected, uncertain, usual, unknown } = json;
  return {
    affected,
    uncertain,
    usual,
    unknown,
    withoutThreshold: json.without_threshold,
    affectedEarlier: json.affected_earlier,
    usualAgain: json.usual_again,
    worstNow: json.worst_now.map(parseRow),
    worstEarlier: json.worst_earlier.map(parseRow),
  };
}

function parsePeriod({ start_ns, end_ns, above, count }: PeriodJson): AffectedPeriod {
  return { start: start_ns / 1e6, end: end_ns / 1e6, above: parseBracket(above), count };
}

function parseRow(row: RowJson): OverviewRow {
  const bracket = (json: BracketJson | null) => json && parseBracket(json);
  const { threshold, unusual, heatmap, users, worst_hour: worst, affected_since: since } = row;
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
    affectedSince: since && { start: since.start_ns / 1e6, end: since.end_ns / 1e6 },
    burnRateNow: bracket(row.burn_rate_now),
    expectedShare: row.expected_share,
    expectedNow: row.expected_now,
    expectedToday: row.expected_today,
    worstHour: worst && {
      ...parsePeriod(worst),
      burnRate: parseBracket(worst.burn_rate),
      period: parsePeriod(worst.period ?? worst),
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
      sloOfPart: threshold.slo_of_part,
      learnedFrom: hasHistory ? (end_ns - start_ns) / 1e6 : null,
    },
    unusual: unusual && {
      days: unusual.days,
      ...(unusual.ratio
        ? { ratio: parseBracket(unusual.ratio) }
        : {
            ratio: null,
            reason: unusual.reason ?? "unknown",
            daysMin: unusual.days_min ?? null,
          }),
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
export function describeThreshold({ origin, slo, sloOfPart, learnedFrom }: RowThreshold): string {
  if (origin === "user") return "yours";
  if (origin === "slo") return `SLO ${slo}`;
  if (origin === "slo_of_part") return `SLO ${sloOfPart}, of some series`;
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

/** Whether a row has values now, but no threshold yet: there are too few to learn one. */
export function lacksThreshold(row: OverviewRow): boolean {
  return row.threshold === null && row.countNow > 0 && !isUnread(row);
}

/** Whether a row was affected earlier today, which a headline says, but is not now. */
export function wasAffected({ state, stateToday, worstHour }: OverviewRow): boolean {
  return state !== "affected" && (worstHour !== null || stateToday === "affected");
}

/** `1.9×` of the worst hours of a row, as a headline has it. */
export function describeWorst({ worstHour, expectedShare }: OverviewRow): string {
  if (!worstHour) return "";
  const { above, count } = worstHour.period;
  return `${formatFactor(above.estimate / count / expectedShare)}×`;
}

/** Whether a threshold is of so short a history that its own values cannot be above it. */
export function isProvisional({ state, threshold }: OverviewRow): boolean {
  const learnedFrom = threshold?.origin === "p99" ? threshold.learnedFrom : null;
  return state === "usual" && learnedFrom !== null && learnedFrom < HOUR;
}

/**
 * The state as it is shown: what an alert fires for, or whose budget is spent, is not normal, and
 * what a threshold of minutes says is unknown. With nothing above the threshold the row is not
 * affected by what it shows: the alert has another one, or another range.
 */
export function shownState(row: OverviewRow, isAlarmed: boolean): RowState {
  if (row.state === "usual" && isAlarmed) {
    return row.aboveNow?.upper === 0 ? "uncertain" : "affected";
  }
  return isProvisional(row) ? "unknown" : row.state;
}

/** When a row has a threshold: `learned from 500 on, in about 12 min`. */
export function describeThresholdWait(row: OverviewRow, needed: number): string {
  // Enough values are old enough: their p99 is of the bucket with the slowest of them.
  if (row.countToday - row.countNow >= needed) return "set one: buckets too wide to tell";
  const minutes = Math.ceil(Math.max(needed - row.countToday, 0) / row.rate / 60);
  // Values count when they are five minutes old.
  const wait = minutes < 24 * 60 ? `, in about ${minutes + RECENT / 60e3} min` : "";
  return `learned from ${formatCount(needed)} on${wait}`;
}

/** How unusual: `3.2×`, or why that is unknown. */
export function describeUnusual(unusual: Unusual | null): string {
  if (!unusual) return "not compared yet";
  if (unusual.ratio) return `${formatFactor(unusual.ratio.estimate)}×`;
  if (unusual.daysMin === null) return unusual.reason;
  return `${unusual.reason}, known in ${Math.max(unusual.daysMin - unusual.days, 1)} d`;
}

export function formatFactor(ratio: number): string {
  return ratio >= 100 ? formatCount(ratio) : ratio.toFixed(1);
}

/** Why the last five minutes are unknown. */
export function unknownReason(row: OverviewRow, now: number): string {
  if (row.latest === null) return "no data";
  if (row.countNow === 0) return `no data for ${roundDuration(now - row.latest)}`;
  return "not read yet";
}

/** The heatmap of the row in Explore, in a range with data. */
export function exploreLink(row: OverviewRow, now: number): string {
  const isRecent = row.latest === null || now - row.latest < HOUR / 2;
  const latest = row.latest ?? now;
  const range = isRecent
    ? { from: "-1h", to: "now" }
    : time.rangeBetween(latest - HOUR, latest + 60e3);
  const threshold = thresholdText(row);
  return write({ view: "explore", settings: { selector: row.selector, threshold, ...range } });
}

function thresholdText({ threshold, unit }: OverviewRow): string {
  return threshold ? formatInput(threshold.value, unit) : "";
}

/** The heatmap of the whole metric, all services, in the last hour. */
export function metricLink(row: OverviewRow): string {
  return write({ view: "explore", settings: { selector: metricSelector(row.name) } });
}

/** `08:00–09:00`, of another day than that of `now` with its date. */
export function formatHour(
  { start, end }: Pick<AffectedPeriod, "start" | "end">,
  now: number,
): string {
  return `${time.formatTimeToday(start, HOUR, now)}–${time.formatTick(end, HOUR)}`;
}

/**
 * Hours of a row in Explore, between their neighbours, with the breakdown by label of the values
 * above the threshold.
 */
export function hourLink(row: OverviewRow, hours: AffectedPeriod, now: number): string {
  return labelsLink(row, hours, [hours.start - HOUR, Math.min(hours.end + HOUR, now)]);
}

/** Exactly these hours of a row in Explore: the count there is that of the overview. */
export function sameHoursLink(row: OverviewRow, { start, end }: AffectedPeriod): string {
  return exploreRange(row.selector, thresholdText(row), start, end);
}

/** The same of what a row is affected by now. */
export function nowLink(row: OverviewRow, now: number): string {
  const start = row.affectedSince?.start ?? now - RECENT;
  return labelsLink(row, { start, end: now }, [Math.min(start - HOUR / 4, now - HOUR), now]);
}

function labelsLink(
  row: OverviewRow,
  { start, end }: { start: number; end: number },
  [from, to]: [number, number],
): string {
  const threshold = thresholdText(row);
  const low = parseThreshold(threshold, row.unit);
  const settings = {
    selector: row.selector,
    threshold,
    ...time.rangeBetween(from, to),
    breakdown: low === null ? "" : writeRectangle({ from: start, to: end, low, high: Infinity }),
  };
  return write({ view: "explore", settings });
}

/** Whether a row has no value today and in the last hour, and nothing of it is left to read. */
export function hasNoValues(row: OverviewRow): boolean {
  return row.countToday === 0 && row.heatmap === null && !isUnread(row);
}

/** `service (metric)`. */
export function nameOf(row: OverviewRow): string {
  return row.service ? `${row.service} (${row.name})` : row.name;
}

/**
 * In their order, but what is not known now after what is, unless it was affected today; last what
 * has no values now and never had a threshold.
 */
export function unknownLast(rows: readonly OverviewRow[]): OverviewRow[] {
  const rank = (row: OverviewRow) => {
    if (row.state !== "unknown" || row.stateToday === "affected" || row.worstHour) return 0;
    return row.threshold || row.countNow || isUnread(row) ? 1 : 2;
  };
  return [...rows].sort((a, b) => rank(a) - rank(b));
}
