/**
 * Programs of a host that publish metrics in shared memory, and their operations in flight: queries
 * over the series that the host's collector writes (docs/host.md).
 */

import { getJson, isAborted, type Series } from "./api";
import { Distribution } from "./distribution";
import { runQuery, type QueryResult } from "./query";
import { hostSelector } from "./resourceMetrics";
import { quoted } from "./selector";
import { formatDuration, formatIso } from "./time";

/** Values of the label `age`. The last is for operations without a start time. */
export const AGES = ["0s-1s", "1s-10s", "10s-60s", "60s+", "unknown"] as const;
export const AGE_NAMES = ["< 1 s", "1–10 s", "10–60 s", "≥ 60 s", "age unknown"] as const;

/** The latency metric of a process with the most values in the recent part of the range. */
export interface Timing {
  metric: string;
  unit: string;
  distribution: Distribution;
  selector: string;
}

export interface Program {
  /** Unique among all programs. */
  id: string;
  process: string;
  /** Number that one process of the program holds at a time, or the name of a sum of several. */
  generation: string;
  /** Format of its metrics (MMV, hsperfdata); empty for topdeck's. */
  format: string;
  /** Null if it is in a namespace that the collector cannot see into. */
  isUp: boolean | null;
  timing: Timing | null;
  /** Operations in flight, by age as in `AGES`; null if it does not publish them. */
  inFlight: number[] | null;
  /** Age of the oldest, in seconds; null if there is none. */
  oldest: number | null;
  /** How and when it exited, in milliseconds, if that is known. */
  exit: { text: string; time: number } | null;
}

export interface ProgramReport {
  /** Programs that run, or whose state is unknown; the busiest first. */
  programs: Program[];
  /** Programs that exited, the latest first. */
  exited: Program[];
  /** Length of the recent part of the range that rates and latencies cover, in milliseconds. */
  recent: number;
  /** Why some metrics were not evaluated; or empty. */
  omission: string;
}

/** Latency metrics that are evaluated to find the busiest. */
const MAX_METRICS = 48;
const TIME_UNITS = ["ns", "us", "µs", "ms", "s"];
const MS_IN_S = 1e3;
const NS_IN_MS = 1e6;

type Labels = Record<string, string>;

/** Labels that identify a process while it runs; `format` is optional. */
const IDENTITY = ["process", "generation", "format"] as const;
const idOf = (labels: Labels) => JSON.stringify(IDENTITY.map((name) => labels[name] ?? ""));
const BY = `by (${IDENTITY.join(", ")})`;

/** PromQL for the state of processes, operations in flight by age, and the age of the oldest. */
export function buildProcessQueries(
  host: string,
  span: number,
): [up: string, inFlight: string, oldest: string] {
  const last = (metric: string) => `last_over_time(${hostSelector(metric, host)}[${span}ms])`;
  return [
    `max ${BY} (${last("process_up")})`,
    `sum by (${[...IDENTITY, "age"].join(", ")}) (${last("process_in_flight")})`,
    `max ${BY} (${last("process_in_flight_oldest_seconds")})`,
  ];
}

/** PromQL for the distribution of a metric in the last `recent` milliseconds, by process. */
export function buildTimingQuery(metric: string, host: string, recent: number): string {
  const matchers = `__name__=${quoted(metric)},host=${quoted(host)},process!=""`;
  return `sum ${BY} (exact_increase({${matchers}}[${recent}ms]))`;
}

/** Programs at the end of a range. */
export async function fetchPrograms(
  host: string,
  [from, to]: readonly [number, number],
  recent: number,
  signal: AbortSignal,
): Promise<ProgramReport> {
  const evaluate = (text: string) => runQuery(text, "promql", [to - recent, to], recent, signal);
  const queries = buildProcessQueries(host, to - from);
  const [up, inFlight, oldest] = await Promise.all(queries.map(evaluate));
  if (!up || !inFlight || !oldest) throw new Error("BUG: expected three results");
  const byId = new Map<string, Program>();
  const programOf = (labels: Labels): Program => {
    const id = idOf(labels);
    const program = byId.get(id) ?? {
      id,
      process: labels["process"] ?? "",
      generation: labels["generation"] ?? "",
      format: labels["format"] ?? "",
      isUp: null,
      timing: null,
      inFlight: null,
      oldest: null,
      exit: null,
    };
    byId.set(id, program);
    return program;
  };
  for (const [labels, value] of lastNumbers(up)) programOf(labels).isUp = value > 0;
  for (const [labels, value] of lastNumbers(inFlight)) {
    const age = (AGES as readonly string[]).indexOf(labels["age"] ?? "");
    const ages = (programOf(labels).inFlight ??= AGES.map(() => 0));
    if (age >= 0) ages[age]! += value;
  }
  for (const [labels, value] of lastNumbers(oldest)) {
    const program = programOf(labels);
    program.inFlight ??= AGES.map(() => 0);
    program.oldest = value > 0 ? value : null;
  }
  const [omission, earlier] = await Promise.all([
    byId.size > 0 ? addTimings(host, recent, evaluate, programOf, signal) : "",
    byId.size > 0 ? addExits(host, [from, to], byId, signal) : [],
  ]);
  const all = [...byId.values()].sort(compareBusiness);
  const exited = all
    .filter((one) => one.isUp === false)
    .concat(earlier)
    .sort((a, b) => (b.exit?.time ?? 0) - (a.exit?.time ?? 0));
  return { programs: all.filter((one) => one.isUp !== false), exited, recent, omission };
}

/** Adds how programs exited; returns earlier processes of generations that are held again. */
async function addExits(
  host: string,
  [from, to]: readonly [number, number],
  byId: ReadonlyMap<string, Program>,
  signal: AbortSignal,
): Promise<Program[]> {
  interface TextsJson {
    texts: { labels: Labels; time_ns: number; text: string }[];
  }
  const range = { from: formatIso(from), to: formatIso(to) };
  const parameters = { selector: hostSelector("process_exit_info", host), ...range, limit: 10_000 };
  const response = await getJson<TextsJson>("/v1/texts", parameters, signal).catch(ignoreError);
  const earlier: Program[] = [];
  for (const { labels, time_ns, text } of response?.texts ?? []) {
    const program = byId.get(idOf(labels));
    if (!program) continue;
    const exit = { text, time: time_ns / NS_IN_MS };
    if (program.isUp === false && exit.time >= (program.exit?.time ?? 0)) program.exit = exit;
    else {
      const id = `${program.id} ${time_ns}`;
      earlier.push({
        ...program,
        id,
        isUp: false,
        timing: null,
        inFlight: null,
        oldest: null,
        exit,
      });
    }
  }
  return earlier;
}

/** Adds the busiest latency metric of each program; returns a note if some were not evaluated. */
async function addTimings(
  host: string,
  recent: number,
  evaluate: (text: string) => Promise<QueryResult>,
  programOf: (labels: Labels) => Program,
  signal: AbortSignal,
): Promise<string> {
  interface SeriesListJson {
    total: number;
    series: Series[];
  }
  const selector = `{host=${quoted(host)},process!="",__kind="cumulative-histogram"}`;
  const parameters = { selector, limit: 10_000 };
  const response = await getJson<SeriesListJson>("/v1/series", parameters, signal);
  const timings = response.series.filter((one) => TIME_UNITS.includes(one.unit ?? ""));
  const names = [...new Set(timings.map((one) => one.name))].sort();
  const evaluated = names.slice(0, MAX_METRICS);
  const results = await Promise.all(
    evaluated.map((name) => evaluate(buildTimingQuery(name, host, recent)).catch(ignoreError)),
  );
  results.forEach((result, index) => {
    const metric = evaluated[index]!;
    for (const { labels, points } of result?.series ?? []) {
      const distribution = points.at(-1)?.value;
      if (!(distribution instanceof Distribution) || distribution.isEmpty) continue;
      const program = programOf(labels);
      if (program.timing && program.timing.distribution.count >= distribution.count) continue;
      const identity = IDENTITY.filter((name) => labels[name]);
      const matchers = [
        `__name__=${quoted(metric)}`,
        `host=${quoted(host)}`,
        ...identity.map((name) => `${name}=${quoted(labels[name]!)}`),
      ];
      const unit = result!.unit;
      program.timing = { metric, unit, distribution, selector: `{${matchers.join(",")}}` };
    }
  });
  const isAll = names.length <= MAX_METRICS && response.total <= response.series.length;
  if (isAll) return "";
  return `Busiest timing: ${MAX_METRICS} of ${names.length} latency metrics were evaluated.`;
}

/** The last number of each series. */
function lastNumbers(result: QueryResult): [Labels, number][] {
  return result.series.flatMap(({ labels, points }) => {
    const last = points.at(-1)?.value;
    return last && "estimate" in last ? [[labels, last.estimate] as [Labels, number]] : [];
  });
}

/** One failed metric does not hide the others. */
function ignoreError(error: unknown): null {
  if (isAborted(error)) throw error;
  return null;
}

function compareBusiness(a: Program, b: Program): number {
  const values = (of: Program) => of.timing?.distribution.count ?? 0;
  const byName = a.process.localeCompare(b.process) || compareGenerations(a, b);
  return values(b) - values(a) || byName;
}

/** Numbers in order, sums after them. */
export function compareGenerations(a: { generation: string }, b: { generation: string }): number {
  return a.generation.localeCompare(b.generation, "en", { numeric: true });
}

/** Values per second. */
export function rateOf(timing: Timing, recent: number): number {
  return timing.distribution.count / (recent / MS_IN_S);
}

/** What rates and latencies of a report cover. */
export function describeRecent({ recent }: ProgramReport): string {
  return `Rates and latencies cover the last ${formatDuration(recent)} of the range.`;
}
