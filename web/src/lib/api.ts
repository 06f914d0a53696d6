/** Questions to the server, and its answers as the page uses them. Nothing here goes to any other host. */

import { ascending, Distribution, exact, type Bracket, type Cell, type Ends } from "./distribution";
import { Kept } from "./kept";
import { clock } from "./now.svelte";
import { between, type Range } from "./time";

/** What the server refused, or why it could not be asked. */
export class Refused extends Error {
  constructor(
    /** 0 if there was no answer. */
    readonly status: number,
    message: string,
    /** In how many seconds the server would like to be asked again, if it says. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

/** Something that is known to be missing. Times are milliseconds since 1970 everywhere in the page. */
export interface Gap {
  start: number;
  end: number;
  lost: number | null;
  reason: string;
}

export interface Column {
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
  columns: Column[];
}

export interface Histogram {
  series: number;
  unit: string;
  distribution: Distribution;
  above: { limit: number; count: Bracket }[];
  quantiles: { q: number; value: Bracket | null }[];
  gaps: Gap[];
}

export interface Found<T> {
  found: number;
  cut: boolean;
  items: T[];
}

export interface Name {
  name: string;
  kind: string;
  unit: string | null;
  series: number;
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

export type Parameters = Record<string, string | number | readonly string[] | undefined>;

/** The token is remembered until the tab is closed. */
const token = new Kept("sessionStorage", "topdeck-token");
/** Milliseconds that an answer may take: more than the server takes for any. After them nobody is there. */
const TIME_MAX = 150_000;

/** Uses a token from now on; whether it can be one. */
export function useToken(text: string): boolean {
  // A header has no room for others.
  const isOne = /^[\x21-\x7e]*$/.test(text);
  if (isOne) token.set(text);
  return isOne;
}

export async function ask<T>(path: string, parameters: Parameters = {}, signal?: AbortSignal): Promise<T> {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined) search.append(name, String(one));
  }
  const query = search.size > 0 ? `?${search}` : "";
  return send<T>("GET", path + query, undefined, signal);
}

async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return (await exchange<T>(method, path, { body, signal })).answer;
}

export interface More {
  body?: unknown;
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
}

/** Sends and asks; the answer, and its tag if it has one. */
export async function exchange<T>(method: string, path: string, more: More = {}): Promise<{ answer: T; tag: string | null }> {
  const headers: Record<string, string> = { Accept: "application/json", ...more.headers };
  const secret = token.get();
  if (secret) headers["Authorization"] = `Bearer ${secret}`;
  if (more.body !== undefined) headers["Content-Type"] = "application/json";
  const late = AbortSignal.timeout(TIME_MAX);
  const init: RequestInit = { method, headers, signal: more.signal ? AbortSignal.any([more.signal, late]) : late };
  if (more.body !== undefined) init.body = JSON.stringify(more.body);
  let [response, text]: [Response | null, string] = [null, ""];
  try {
    const asked = Date.now();
    // The page may stand below a path of a proxy.
    response = await fetch(path.replace(/^\//, ""), init);
    clock.heard(response.headers.get("Date"), asked, Date.now());
    text = await response.text();
  } catch (error) {
    if (more.signal?.aborted) throw error;
    throw new Refused(0, "the server does not answer: it may have stopped, or the network is down");
  }
  if (!response.ok) throw refusal(response, text);
  try {
    return { answer: (text === "" ? undefined : JSON.parse(text)) as T, tag: response.headers.get("ETag") };
  } catch {
    throw new Refused(response.status, "the answer is not one of topdeck: something between it and this browser answers instead");
  }
}

function refusal(response: Response, text: string): Refused {
  let message = text;
  try {
    const told: unknown = JSON.parse(text);
    if (told && typeof told === "object" && "error" in told) message = String(told.error);
  } catch {
    // It is a text already.
  }
  const after = Number(response.headers.get("Retry-After"));
  return new Refused(response.status, message || response.statusText || `the answer has status ${response.status}`, after > 0 ? after : null);
}

/** Whether somebody stopped waiting. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

const MS = 1e6;

/** An end: null where there is none; in answers to questions an infinity is a text. */
export type EndTold = number | string | null;

export interface BracketTold {
  lower: EndTold;
  estimate: number | string;
  upper: EndTold;
}

interface CellTold {
  lower: number | null;
  upper: number | null;
  count: number;
}

interface DistributionTold {
  count: number;
  sum: BracketTold;
  cells: CellTold[];
  min?: BracketTold | null;
  max?: BracketTold | null;
}

interface GapTold {
  start_ns: number;
  end_ns: number;
  lost: number | null;
  reason: string;
}

interface HeatmapTold {
  selector: string;
  series: number;
  unit: string | null;
  start_ns: number;
  end_ns: number;
  step_ns: number;
  total: DistributionTold;
  /** Ends of cells, which columns refer to. */
  edges: [number | null, number | null][];
  columns: { start_ns: number; end_ns: number; sum: BracketTold; min?: BracketTold | null; max?: BracketTold | null; cells: number[]; gaps: GapTold[] }[];
}

/** Columns of `step` milliseconds between two moments. */
export async function heatmap(
  selector: string,
  [from, to]: readonly [number, number],
  step: number,
  signal?: AbortSignal,
): Promise<Heatmap> {
  const parameters = { selector, ...times(between(from, to)), step: `${step}ms`, cells: "indexed" };
  const told = await ask<HeatmapTold>("/v1/heatmap", parameters, signal);
  const edges = told.edges.map(([lower, upper]) => ends(lower, upper));
  return {
    selector: told.selector,
    series: told.series,
    unit: told.unit ?? "",
    start: told.start_ns / MS,
    end: told.end_ns / MS,
    step: told.step_ns / MS,
    total: distribution(told.total),
    columns: told.columns.map((column) => ({
      start: column.start_ns / MS,
      end: column.end_ns / MS,
      distribution: new Distribution(indexed(column.cells, edges), bracket(column.sum), extremes(column)),
      gaps: column.gaps.map(gap),
    })),
  };
}

/** Pairs of numbers: how far on in the list of ends, and how many. */
function indexed(pairs: readonly number[], edges: readonly { lower: number; upper: number }[]): Cell[] {
  const cells: Cell[] = [];
  let at = 0;
  for (let pair = 0; pair + 1 < pairs.length; pair += 2) {
    at += pairs[pair]!;
    cells.push({ ...edges[at]!, count: pairs[pair + 1]! });
  }
  return cells;
}

export async function histogram(
  selector: string,
  range: Range,
  more: { above?: string[]; q?: string } = {},
  signal?: AbortSignal,
): Promise<Histogram> {
  interface Told extends DistributionTold {
    series: number;
    unit: string | null;
    above: { limit: number; count: BracketTold }[];
    quantiles: { q: number; value: BracketTold | null }[];
    gaps: GapTold[];
  }
  const told = await ask<Told>("/v1/histogram", { selector, ...times(range), ...more }, signal);
  return {
    series: told.series,
    unit: told.unit ?? "",
    distribution: distribution(told),
    above: told.above.map(({ limit, count }) => ({ limit, count: bracket(count) })),
    quantiles: told.quantiles.map(({ q, value }) => ({ q, value: value && bracket(value) })),
    gaps: told.gaps.map(gap),
  };
}

/** When series had their first value and their last, whenever that was; null if they have none. It looks through all of them. */
export async function extent(selector: string, signal?: AbortSignal): Promise<[number, number] | null> {
  const told = await ask<{ count: number; start_ns: number; end_ns: number }>("/v1/histogram", { selector, timeout: "5s" }, signal);
  return told.count > 0 ? [told.start_ns / MS, told.end_ns / MS] : null;
}

export async function names(signal?: AbortSignal): Promise<Found<Name>> {
  const told = await ask<{ found: number; cut: boolean; names: Name[] }>("/v1/names", { limit: 10_000 }, signal);
  return { found: told.found, cut: told.cut, items: told.names };
}

export async function annotations(range: Range, signal?: AbortSignal): Promise<Annotation[]> {
  interface Told {
    annotations: { text: string; tags: Record<string, string>; start_ns: number; end_ns: number }[];
  }
  const told = await ask<Told>("/v1/annotations", times(range), signal);
  return told.annotations.map(({ text, tags, start_ns, end_ns }) => ({
    text,
    tags,
    start: start_ns / MS,
    end: end_ns / MS,
  }));
}

/** A range as parameters. What is relative stays so, and is worked out by the server's clock. */
export function times(range: Range): { from: string; to: string } {
  return { from: String(range.from), to: String(range.to) };
}

export function distribution(told: DistributionTold): Distribution {
  const cells = told.cells.map((cell) => ({ ...ends(cell.lower, cell.upper), count: cell.count }));
  return new Distribution(cells.sort(ascending), bracket(told.sum), extremes(told));
}

function extremes({ min, max }: Pick<DistributionTold, "min" | "max">): Ends | null {
  return min && max ? { min: bracket(min), max: bracket(max) } : null;
}

export function bracket(told: BracketTold | number): Bracket {
  if (typeof told === "number") return exact(told);
  return { ...ends(told.lower, told.upper), estimate: end(told.estimate, NaN) };
}

export function gap(told: GapTold): Gap {
  return { start: told.start_ns / MS, end: told.end_ns / MS, lost: told.lost, reason: told.reason };
}

function ends(lower: EndTold, upper: EndTold): { lower: number; upper: number } {
  return { lower: end(lower, -Infinity), upper: end(upper, Infinity) };
}

function end(told: EndTold, none: number): number {
  if (typeof told === "string") return told === "NaN" ? NaN : told === "-Inf" ? -Infinity : Infinity;
  return told ?? none;
}
