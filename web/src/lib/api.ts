/** Client of the server's HTTP API. Nothing here contacts any other host. */

import {
  ascending,
  Distribution,
  exact,
  type Bracket,
  type Cell,
  type Extremes,
} from "./distribution";
import { DEFAULT_EXPECTED, type Expected } from "./excess";
import { PersistedValue } from "./persisted";
import { serverClock } from "./serverClock.svelte";
import { rangeBetween, requireRange, type TimeRange } from "./time";

/** A request that failed: rejected by the server, or without a response. */
export class ApiError extends Error {
  constructor(
    /** HTTP status; 0 without a response. */
    readonly status: number,
    message: string,
    /** Seconds of the header `Retry-After`. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

/** Missing data of a known reason. Times are milliseconds since 1970 everywhere in the page. */
export interface Gap {
  start: number;
  end: number;
  lost: number | null;
  reason: string;
}

export interface HeatmapColumn {
  start: number;
  end: number;
  distribution: Distribution;
  gaps: Gap[];
}

export interface Heatmap {
  selector: string;
  series: number;
  unit: string;
  start: number;
  end: number;
  step: number;
  total: Distribution;
  columns: HeatmapColumn[];
  /** Series without a unit that are not shown, beside others that have one. */
  leftOut: { series: number; examples: Series[] } | null;
}

export interface Histogram {
  series: number;
  unit: string;
  distribution: Distribution;
  above: { threshold: number; count: Bracket; expected: Expected }[];
  quantiles: { q: number; value: Bracket | null }[];
  gaps: Gap[];
}

/** Items up to a limit, of `total`. */
export interface LimitedList<T> {
  total: number;
  isTruncated: boolean;
  items: T[];
}

export interface MetricInfo {
  name: string;
  kind: string;
  unit: string | null;
  series: number;
  /** Help text. */
  help?: string;
}

export interface Series {
  name: string;
  labels: Record<string, string>;
  kind: string;
  unit: string | null;
}

export interface Annotation {
  text: string;
  tags: Record<string, string>;
  start: number;
  end: number;
}

export type QueryParameters = Record<string, string | number | readonly string[] | undefined>;

/** Lasts until the tab is closed. */
const token = new PersistedValue("sessionStorage", "topdeck-token");
/** Timeout in milliseconds: longer than any of the server's, so that it means a dead connection. */
const TIMEOUT_MS = 150_000;

/** Sends a token from now on; false if it contains characters that a header cannot. */
export function setToken(text: string): boolean {
  const isValid = /^[\x21-\x7e]*$/.test(text);
  if (isValid) token.set(text);
  return isValid;
}

export function hasToken(): boolean {
  return Boolean(token.get());
}

export async function getJson<T>(
  path: string,
  parameters: QueryParameters = {},
  signal?: AbortSignal,
): Promise<T> {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined) search.append(name, String(one));
    }
  }
  const query = search.size > 0 ? `?${search}` : "";
  return (await sendRequest<T>("GET", path + query, { signal })).response;
}

export interface RequestOptions {
  body?: unknown;
  /** Body that is no JSON. */
  text?: string;
  /** Longest wait for the response, if not that of other requests. */
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
}

/** Sends a request; returns the response's JSON and its ETag. */
export async function sendRequest<T>(
  method: string,
  path: string,
  options: RequestOptions = {},
): Promise<{ response: T; tag: string | null }> {
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  const secret = token.get();
  if (secret) headers["Authorization"] = `Bearer ${secret}`;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  const timeout = AbortSignal.timeout(options.timeoutMs ?? TIMEOUT_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
  const init: RequestInit = { method, headers, signal };
  if (options.body !== undefined) init.body = JSON.stringify(options.body);
  if (options.text !== undefined) init.body = options.text;
  let [response, text]: [Response | null, string] = [null, ""];
  try {
    const sentAt = Date.now();
    // Relative to the page, which may be served below a path of a proxy.
    response = await fetch(path.replace(/^\//, ""), init);
    serverClock.synchronize(response.headers.get("Date"), sentAt, Date.now());
    text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(
      0,
      "cannot reach the server: it is stopped, or the network is down; the page retries",
    );
  }
  if (!response.ok) throw toError(response, text);
  try {
    const json = (text === "" ? undefined : JSON.parse(text)) as T;
    return { response: json, tag: response.headers.get("ETag") };
  } catch {
    throw new ApiError(
      response.status,
      "cannot parse the response as JSON: it may come from a proxy; check the address",
    );
  }
}

function toError(response: Response, text: string): ApiError {
  let message = text;
  try {
    const json: unknown = JSON.parse(text);
    if (json && typeof json === "object" && "error" in json) message = String(json.error);
  } catch {
    // Plain text.
  }
  const seconds = Number(response.headers.get("Retry-After"));
  return new ApiError(
    response.status,
    message || response.statusText || `HTTP status ${response.status}`,
    seconds > 0 ? seconds : null,
  );
}

/** Whether a request was aborted by the page. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

const NS_IN_MS = 1e6;

/** A bound: null where there is none; query responses have infinities as strings. */
export type BoundJson = number | string | null;

export interface BracketJson {
  lower: BoundJson;
  estimate: number | string;
  upper: BoundJson;
}

export interface CellJson {
  lower: number | null;
  upper: number | null;
  count: number;
}

export interface DistributionJson {
  count: number;
  sum: BracketJson;
  cells: CellJson[];
  min?: BracketJson | null;
  max?: BracketJson | null;
}

export interface GapJson {
  start_ns: number;
  end_ns: number;
  lost: number | null;
  reason: string;
}

interface HeatmapColumnJson {
  start_ns: number;
  end_ns: number;
  sum: BracketJson;
  min?: BracketJson | null;
  max?: BracketJson | null;
  cells: number[];
  gaps: GapJson[];
}

interface HeatmapJson {
  selector: string;
  series: number;
  unit: string | null;
  start_ns: number;
  end_ns: number;
  step_ns: number;
  left_out?: { series: number; examples: Series[] };
  total: DistributionJson;
  /** Bounds of all cells; columns refer to them by index. */
  edges: [number | null, number | null][];
  columns: HeatmapColumnJson[];
}

/** Columns of `step` milliseconds. */
export async function fetchHeatmap(
  selector: string,
  [from, to]: readonly [number, number],
  step: number,
  signal?: AbortSignal,
): Promise<Heatmap> {
  const range = rangeParameters(rangeBetween(from, to));
  const parameters = { selector, ...range, step: `${step}ms`, cells: "indexed" };
  const response = await getJson<HeatmapJson>("/v1/heatmap", parameters, signal);
  const edges = response.edges.map(([lower, upper]) => toBounds(lower, upper));
  const toColumn = (column: HeatmapColumnJson): HeatmapColumn => {
    const cells = expandCells(column.cells, edges);
    return {
      start: column.start_ns / NS_IN_MS,
      end: column.end_ns / NS_IN_MS,
      distribution: new Distribution(cells, parseBracket(column.sum), parseExtremes(column)),
      gaps: column.gaps.map(parseGap),
    };
  };
  return {
    selector: response.selector,
    series: response.series,
    unit: response.unit ?? "",
    start: response.start_ns / NS_IN_MS,
    end: response.end_ns / NS_IN_MS,
    step: response.step_ns / NS_IN_MS,
    total: parseDistribution(response.total),
    columns: response.columns.map(toColumn),
    leftOut: response.left_out ?? null,
  };
}

/** A threshold as a parameter of a request, and in PromQL. */
export interface QueryThreshold {
  parameter: string;
  promql: string;
}

/** A duration in PromQL, in the largest unit that gives a whole number: `2m`. */
export function promqlDuration(ms: number): string {
  for (const [size, unit] of [
    [86_400e3, "d"],
    [3_600e3, "h"],
    [60e3, "m"],
    [1e3, "s"],
  ] as const) {
    if (ms > 0 && ms % size === 0) return `${ms / size}${unit}`;
  }
  return `${ms}ms`;
}

/**
 * A heatmap as a request, and in PromQL, whose selectors have no `and()`, `or()` and `not()`. With
 * a threshold the expression is the number of values above it in the whole heatmap.
 */
export function heatmapQuery(
  { selector, start, end, step }: Pick<Heatmap, "selector" | "start" | "end" | "step">,
  threshold: QueryThreshold | null = null,
): {
  promql: string | null;
  path: string;
  parameters: Record<string, string>;
} {
  const isTagSearch = /^\s*(and|or|not)\(/.test(selector);
  const range = rangeParameters(rangeBetween(start, end));
  const length = promqlDuration(Math.round(end - start));
  const promql = threshold
    ? `histogram_count_above(${threshold.promql}, ` +
      `sum(exact_increase(${selector}[${length}] @ ${end / 1e3})))`
    : `sum(exact_increase(${selector}[${promqlDuration(step)}]))`;
  return {
    promql: isTagSearch ? null : promql,
    path: "/v1/heatmap",
    parameters: {
      selector,
      ...range,
      step: `${step}ms`,
      ...(threshold ? { above: threshold.parameter } : {}),
    },
  };
}

/** The query of a distribution, for other clients: a range that ends now is fixed. */
export function histogramQuery(
  selector: string,
  range: TimeRange,
  now: number,
): ReturnType<typeof heatmapQuery> {
  const [start, end] = requireRange(range, now);
  const isTagSearch = /^\s*(and|or|not)\(/.test(selector);
  const length = promqlDuration(Math.round(end - start));
  return {
    promql: isTagSearch ? null : `sum(exact_increase(${selector}[${length}] @ ${end / 1e3}))`,
    path: "/v1/histogram",
    parameters: { selector, ...rangeParameters(rangeBetween(start, end)) },
  };
}

/** Decodes pairs: the increment of the index into `edges`, and the count. */
function expandCells(
  pairs: readonly number[],
  edges: readonly { lower: number; upper: number }[],
): Cell[] {
  const cells: Cell[] = [];
  let index = 0;
  for (let pair = 0; pair + 1 < pairs.length; pair += 2) {
    index += pairs[pair]!;
    cells.push({ ...edges[index]!, count: pairs[pair + 1]! });
  }
  return cells;
}

export async function fetchHistogram(
  selector: string,
  range: TimeRange,
  options: { above?: string[]; q?: string } = {},
  signal?: AbortSignal,
): Promise<Histogram> {
  interface HistogramJson extends DistributionJson {
    series: number;
    unit: string | null;
    /** Servers of an earlier version do not say what is expected. */
    above: { threshold: number; count: BracketJson; expected_share?: number; slo?: string }[];
    quantiles: { q: number; value: BracketJson | null }[];
    gaps: GapJson[];
  }
  const parameters = { selector, ...rangeParameters(range), ...options };
  const response = await getJson<HistogramJson>("/v1/histogram", parameters, signal);
  return {
    series: response.series,
    unit: response.unit ?? "",
    distribution: parseDistribution(response),
    above: response.above.map(({ threshold, count, expected_share: share, slo }) => ({
      threshold,
      count: parseBracket(count),
      expected: share === undefined ? DEFAULT_EXPECTED : { share, slo: slo ?? null },
    })),
    quantiles: response.quantiles.map(({ q, value }) => ({
      q,
      value: value && parseBracket(value),
    })),
    gaps: response.gaps.map(parseGap),
  };
}

/** Times of the first and the last value; null if there are none. Scans all of them. */
export async function fetchExtent(
  selector: string,
  signal?: AbortSignal,
): Promise<[number, number] | null> {
  interface ExtentJson {
    count: number;
    start_ns: number;
    end_ns: number;
  }
  const parameters = { selector, timeout: "5s" };
  const response = await getJson<ExtentJson>("/v1/histogram", parameters, signal);
  if (response.count === 0) return null;
  return [response.start_ns / NS_IN_MS, response.end_ns / NS_IN_MS];
}

export async function fetchMetricNames(signal?: AbortSignal): Promise<LimitedList<MetricInfo>> {
  interface MetricNamesJson {
    total: number;
    truncated: boolean;
    names: MetricInfo[];
  }
  const response = await getJson<MetricNamesJson>("/v1/metric_names", { limit: 10_000 }, signal);
  return { total: response.total, isTruncated: response.truncated, items: response.names };
}

/** Help texts of the selected metrics, each once. */
export async function fetchHelp(selector: string, signal?: AbortSignal): Promise<string[]> {
  const parameters = { selector, limit: 10 };
  const { names } = await getJson<{ names: MetricInfo[] }>("/v1/metric_names", parameters, signal);
  return [...new Set(names.flatMap(({ help }) => (help ? [help] : [])))];
}

export async function fetchAnnotations(
  range: TimeRange,
  signal?: AbortSignal,
): Promise<Annotation[]> {
  interface AnnotationsJson {
    annotations: {
      text: string;
      tags: Record<string, string>;
      start_ns: number;
      end_ns: number;
    }[];
  }
  const path = "/v1/annotations";
  const response = await getJson<AnnotationsJson>(path, rangeParameters(range), signal);
  return response.annotations.map(({ text, tags, start_ns, end_ns }) => ({
    text,
    tags,
    start: start_ns / NS_IN_MS,
    end: end_ns / NS_IN_MS,
  }));
}

/** Relative times stay relative: the server resolves them by its own clock. */
export function rangeParameters(range: TimeRange): { from: string; to: string } {
  return { from: String(range.from), to: String(range.to) };
}

export function parseDistribution(json: DistributionJson): Distribution {
  const cells = json.cells.map((cell) => ({
    ...toBounds(cell.lower, cell.upper),
    count: cell.count,
  }));
  return new Distribution(cells.sort(ascending), parseBracket(json.sum), parseExtremes(json));
}

function parseExtremes({ min, max }: Pick<DistributionJson, "min" | "max">): Extremes | null {
  return min && max ? { min: parseBracket(min), max: parseBracket(max) } : null;
}

export function parseBracket(json: BracketJson | number): Bracket {
  if (typeof json === "number") return exact(json);
  return { ...toBounds(json.lower, json.upper), estimate: toNumber(json.estimate, NaN) };
}

export function parseGap(json: GapJson): Gap {
  return {
    start: json.start_ns / NS_IN_MS,
    end: json.end_ns / NS_IN_MS,
    lost: json.lost,
    reason: json.reason,
  };
}

function toBounds(lower: BoundJson, upper: BoundJson): { lower: number; upper: number } {
  return { lower: toNumber(lower, -Infinity), upper: toNumber(upper, Infinity) };
}

function toNumber(json: BoundJson, absent: number): number {
  if (typeof json === "string") {
    return json === "NaN" ? NaN : json === "-Inf" ? -Infinity : Infinity;
  }
  return json ?? absent;
}
