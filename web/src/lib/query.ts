/** Queries in PromQL and CAQL, and their results. */

import {
  getJson,
  parseBracket,
  parseDistribution,
  parseGap,
  type BracketJson,
  type DistributionJson,
  type Gap,
  type GapJson,
  type Heatmap,
} from "./api";
import { ascending, Distribution, exact, type Bracket } from "./distribution";
import { quoted } from "./selector";
import { formatIso } from "./time";

export const LANGUAGES = { promql: "PromQL", caql: "CAQL" } as const;
export type QueryLanguage = keyof typeof LANGUAGES;

/** A number with its bounds, or a distribution; null for NaN. */
export interface QueryPoint {
  time: number;
  value: Bracket | Distribution | null;
}

export interface QuerySeries {
  labels: Record<string, string>;
  points: QueryPoint[];
}

export interface QueryResult {
  /** Text of the query. */
  query?: string;
  unit: string;
  series: QuerySeries[];
  /** Maxima that belong to percentiles in the result: their query, and their series. */
  maxima: { query: string; series: QuerySeries[] }[];
  warnings: string[];
  gaps: Gap[];
}

/** A number; query responses have infinities as strings. */
type NumberJson = number | string;

/** A float histogram, as of rate and increase: its counts are fractions. */
interface FloatHistogramJson {
  count: NumberJson;
  sum: NumberJson;
  buckets: { lower: NumberJson; upper: NumberJson; count: NumberJson }[];
}

type ValueJson = NumberJson | BracketJson | DistributionJson | FloatHistogramJson;

interface SeriesJson {
  labels: Record<string, string>;
  points: { time_ns: number; value: ValueJson }[];
}

interface QueryJson {
  kind: string;
  unit: string | null;
  data: unknown;
  maxima: { expression: string; data: SeriesJson[] }[];
  warnings: string[];
  gaps: GapJson[];
}

/** Parameters of `/v1/query` for the columns of a range, each of which ends at an evaluation. */
export function queryParameters(
  query: string,
  language: QueryLanguage,
  [from, to]: readonly [number, number],
  step: number,
): Record<string, string> {
  const range = { from: formatIso(from + step), to: formatIso(to), step: `${step}ms` };
  return { query, language, ...range };
}

/**
 * Evaluates a query for each column of a range, in milliseconds. `experimental`: with functions
 * that Prometheus has behind feature flags.
 */
export async function runQuery(
  text: string,
  language: QueryLanguage,
  range: readonly [number, number],
  step: number,
  signal: AbortSignal,
  experimental = false,
): Promise<QueryResult> {
  const parameters = {
    ...queryParameters(text, language, range, step),
    ...(experimental ? { experimental: "true" } : {}),
  };
  const response = await getJson<QueryJson>("/v1/query", parameters, signal);
  return {
    query: text,
    unit: response.unit ?? "",
    series: parseData(response.kind, response.data),
    maxima: response.maxima.map(({ expression, data }) => ({
      query: expression,
      series: data.map(parseSeries),
    })),
    warnings: response.warnings,
    gaps: response.gaps.map(parseGap),
  };
}

function parseData(kind: string, data: unknown): QuerySeries[] {
  if (kind === "scalar") {
    return [parseSeries({ labels: {}, points: data as SeriesJson["points"] })];
  }
  return kind === "vector" || kind === "matrix" ? (data as SeriesJson[]).map(parseSeries) : [];
}

function parseSeries({ labels, points }: SeriesJson): QuerySeries {
  const parsePoint = (point: SeriesJson["points"][number]) => ({
    time: point.time_ns / 1e6,
    value: parseValue(point.value),
  });
  return { labels, points: points.map(parsePoint) };
}

function parseValue(value: ValueJson): Bracket | Distribution | null {
  if (typeof value === "number" || typeof value === "string") {
    const number = parseNumber(value);
    return Number.isNaN(number) ? null : exact(number);
  }
  if ("cells" in value) return parseDistribution(value);
  if ("buckets" in value) return parseFloatHistogram(value);
  if (!("estimate" in value)) return null;
  const bracket = parseBracket(value);
  return Number.isNaN(bracket.estimate) ? null : bracket;
}

/** JSON has no numbers for NaN and the infinities. */
function parseNumber(json: NumberJson): number {
  if (typeof json === "number") return json;
  return json === "NaN" ? NaN : json === "-Inf" ? -Infinity : Infinity;
}

/** Buckets with a negative count, which a subtraction has, cannot be drawn. */
function parseFloatHistogram({ sum, buckets }: FloatHistogramJson): Distribution {
  const cells = buckets
    .map(({ lower, upper, count }) => ({
      lower: parseNumber(lower),
      upper: parseNumber(upper),
      count: parseNumber(count),
    }))
    .filter((cell) => cell.count > 0 && Number.isFinite(cell.count));
  return new Distribution(cells.sort(ascending), exact(parseNumber(sum)));
}

/** Whether a series is one of distributions. */
export function hasDistributions({ points }: QuerySeries): boolean {
  return points.some((point) => point.value instanceof Distribution);
}

/** A series of distributions as a heatmap; null if it is one of numbers. */
export function toHeatmap(
  name: string,
  of: QuerySeries,
  unit: string,
  [from, to]: readonly [number, number],
  step: number,
  gaps: Gap[],
): Heatmap | null {
  if (!hasDistributions(of)) return null;
  const byTime = new Map(of.points.map((point) => [Math.round(point.time), point.value]));
  const columns = [];
  for (let start = from; start < to; start += step) {
    const end = start + step;
    const value = byTime.get(Math.round(end));
    const distribution = value instanceof Distribution ? value : Distribution.EMPTY;
    const overlapping = gaps.filter((gap) => gap.start < end && gap.end >= start);
    columns.push({ start, end, distribution, gaps: overlapping });
  }
  const total = Distribution.merged(columns.map((column) => column.distribution));
  return {
    selector: name,
    series: 1,
    unit,
    start: from,
    end: to,
    step,
    total,
    columns,
    leftOut: null,
  };
}

/** Labels in the syntax of selectors. */
export function formatLabels(labels: Record<string, string>): string {
  const { __name__: name = "", ...rest } = labels;
  const pairs = Object.entries(rest).map(([label, value]) => `${label}=${quoted(value)}`);
  return pairs.length > 0 ? `${name}{${pairs.join(", ")}}` : name || "all";
}

/**
 * The name of a line: the template with the values of its labels, `{{host}}`, as in Grafana. All
 * labels without a template, or if nothing remains of it.
 */
export function seriesName(labels: Record<string, string>, template = ""): string {
  if (template === "" || template === "__auto") return formatLabels(labels);
  const name = template.replace(
    /\{\{\s*([^{}]*?)\s*\}\}/g,
    (_, label: string) => labels[label] ?? "",
  );
  return name.trim() || formatLabels(labels);
}

/** The last number of a series; negative infinity if it has none, which sorts last. */
export function lastNumber({ points }: QuerySeries): number {
  const value = points[points.length - 1]?.value ?? null;
  return value && "estimate" in value ? value.estimate : -Infinity;
}

/** A line of a query, the column in it, and a message. */
export interface ErrorLocation {
  line: string;
  column: number;
  message: string;
}

/** Splits an error such as `2:7: expected …`; null if it has no position. */
export function locateError(error: string, query: string): ErrorLocation | null {
  const match = /^(\d+):(\d+): (.*)$/s.exec(error);
  if (!match) return null;
  const line = query.split("\n")[Number(match[1]) - 1] ?? "";
  return { line, column: Number(match[2]) - 1, message: match[3]! };
}
