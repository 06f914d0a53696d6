/** Load runs that a generator pushed (`topdeck load --push`). Times are in milliseconds. */

import { getJson, parseBracket, type BracketJson } from "./api";
import { describeComparison } from "./comparison";
import { Distribution } from "./distribution";
import { runQuery, type QueryResult, type QuerySeries } from "./query";
import { quoted } from "./selector";
import { columnStep, rangeBetween, type TimeRange } from "./time";
import { formatCount, formatShare } from "./unit";

/** Counters of requests, `load_NAME_requests_total`. */
const COUNTS = [
  "scheduled",
  "completed",
  "failed",
  "unfinished",
  "not_sent",
  "observed_late",
] as const;
export type RequestCount = (typeof COUNTS)[number];

/** Distributions, `load_NAME_time`. */
const TIMES = ["response", "service", "queue"] as const;
export type LoadTime = (typeof TIMES)[number];

/** What the generator said of itself. Without a word it is unknown, never valid. */
export type RunValidity = "valid" | "invalid" | "unknown";

export interface LoadRun {
  /** Run, target and protocol. */
  key: string;
  run: string;
  target: string;
  protocol: string;
  start: number;
  end: number;
  /** Whether the run began before the range, so that numbers are of a part of it. */
  isCut: boolean;
  schedule: string;
  validity: RunValidity;
  /** Why the run is invalid, or why its validity is unknown. */
  reason: string;
  counts: Record<RequestCount, number>;
  unit: string;
  times: Record<LoadTime, Distribution>;
}

/** Columns of the rates of a run. */
const MAX_STEPS = 300;
/** A second of a run ends with a sample. */
const SECOND = 1_000;
/** A run with a later sample than this may continue. */
const RUNNING_MS = 15_000;
const BY = "run, target, protocol";

const keyOf = (labels: Record<string, string>) =>
  JSON.stringify([labels["run"] ?? "", labels["target"] ?? "", labels["protocol"] ?? ""]);

/** Several expressions in one query, each with its name in a label. */
function union(label: string, parts: readonly (readonly [string, string])[]): string {
  return parts
    .map(([name, expression]) => `label_replace(${expression}, "${label}", "${name}", "", "")`)
    .join(" or ");
}

/** Runs in a range, the latest first. */
export async function fetchLoadRuns(
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<LoadRun[]> {
  const length = Math.max(Math.round(to - from), 1);
  const over = `[${length}ms]`;
  const counts = union(
    "count",
    COUNTS.map((one) => {
      const metric = `load_${one}_requests_total`;
      return [one, `sum by (${BY}) (exact_increase(${metric}${over}))`];
    }),
  );
  const times = union(
    "time",
    TIMES.map((one) => [one, `sum by (${BY}) (exact_increase(load_${one}_time${over}))`]),
  );
  const peak = `load_in_flight_requests_peak${over}`;
  const ends = union("end", [
    ["first", `min by (${BY}) (ts_of_first_over_time(${peak}))`],
    ["last", `max by (${BY}) (ts_of_last_over_time(${peak}))`],
  ]);
  const ask = (query: string) => runQuery(query, "promql", [to - length, to], length, signal, true);
  const [found, durations, extents, validities, schedules] = await Promise.all([
    ask(counts),
    ask(times),
    ask(ends),
    fetchTexts("load_run_validity", [from, to], signal),
    fetchTexts("load_run_schedule", [from, to], signal),
  ]);
  return toLoadRuns({ found, durations, extents, validities, schedules }, [to - length, to]);
}

interface LoadRunParts {
  found: QueryResult;
  durations: QueryResult;
  extents: QueryResult;
  /** Texts by the key of their run. */
  validities: ReadonlyMap<string, string>;
  schedules: ReadonlyMap<string, string>;
}

function latestNumber(of: QuerySeries | undefined): number | null {
  const value = of?.points.at(-1)?.value;
  return value && "estimate" in value ? value.estimate : null;
}

export function toLoadRuns(
  { found, durations, extents, validities, schedules }: LoadRunParts,
  [from, to]: readonly [number, number],
): LoadRun[] {
  const seriesOf = (result: QueryResult, key: string, label: string, name: string) =>
    result.series.find(({ labels }) => labels[label] === name && keyOf(labels) === key);
  const all = [...found.series, ...durations.series];
  const labels = new Map(all.map((one) => [keyOf(one.labels), one.labels]));
  const runs = [...labels].map(([key, { run = "", target = "", protocol = "" }]): LoadRun => {
    const end = (name: string) => latestNumber(seriesOf(extents, key, "end", name));
    const [first, last] = [end("first"), end("last")];
    // A run with its samples before the range has none in it.
    const [start, stop] = [(first ?? from / 1e3) * 1e3 - SECOND, (last ?? to / 1e3) * 1e3];
    const timeOf = (name: LoadTime) => {
      const value = seriesOf(durations, key, "time", name)?.points.at(-1)?.value;
      return value instanceof Distribution ? value : Distribution.EMPTY;
    };
    const countOf = (name: RequestCount) => latestNumber(seriesOf(found, key, "count", name)) ?? 0;
    return {
      key,
      run,
      target,
      protocol,
      start,
      end: stop,
      isCut: start < from + SECOND,
      schedule: schedules.get(key) ?? "",
      ...describeValidity(validities.get(key), to - stop < RUNNING_MS),
      counts: Object.fromEntries(COUNTS.map((one) => [one, countOf(one)])) as LoadRun["counts"],
      // Unknown if one of the times has no series; all are sent in nanoseconds.
      unit: durations.unit || "ns",
      times: Object.fromEntries(TIMES.map((one) => [one, timeOf(one)])) as LoadRun["times"],
    };
  });
  return runs.sort((a, b) => b.start - a.start || (a.key < b.key ? -1 : 1));
}

function describeValidity(
  text: string | undefined,
  mayRun: boolean,
): Pick<LoadRun, "validity" | "reason"> {
  if (text === "valid") return { validity: "valid", reason: "" };
  const reason = text === undefined ? null : /^invalid: (.*)$/s.exec(text)?.[1];
  if (reason != null) return { validity: "invalid", reason };
  const silence = mayRun
    ? "the run may be in progress"
    : "the generator was aborted, could not deliver it, or is an earlier version";
  return { validity: "unknown", reason: `no validity was received: ${silence}` };
}

/** Latest texts of a metric, by the key of their run. */
async function fetchTexts(
  selector: string,
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<Map<string, string>> {
  interface TextsJson {
    texts: { labels: Record<string, string>; text: string }[];
  }
  const parameters = { selector, ...rangeBetween(from, to), limit: 10_000 };
  const { texts } = await getJson<TextsJson>("/v1/texts", parameters, signal);
  return new Map(texts.map(({ labels, text }) => [keyOf(labels), text]));
}

const matchers = ({ run, target, protocol }: LoadRun) =>
  `{run=${quoted(run)}, target=${quoted(target)}, protocol=${quoted(protocol)}}`;

export const loadSelector = (run: LoadRun, of: LoadTime): string =>
  `load_${of}_time${matchers(run)}`;

/** The range of a run, with a second before and after it. */
export function runRange({ start, end }: LoadRun): TimeRange {
  return rangeBetween(start - SECOND, end + SECOND);
}

/** Requests per second over a run: scheduled, completed and failed. */
export async function fetchRates(
  run: LoadRun,
  signal: AbortSignal,
): Promise<{ result: QueryResult; range: [number, number] }> {
  const step = columnStep(run.end - run.start, MAX_STEPS);
  const from = Math.floor(run.start / step) * step;
  const range: [number, number] = [from, Math.ceil(run.end / step) * step];
  const rates = (["scheduled", "completed", "failed"] as const).map((one) => {
    const metric = `load_${one}_requests_total${matchers(run)}`;
    return [one, `sum(exact_increase(${metric}[${step}ms])) / ${step / 1e3}`] as const;
  });
  const result = await runQuery(union("requests", rates), "promql", range, step, signal);
  return { result: { ...result, unit: "/s" }, range };
}

/** `12,000 of 12,000 (100 %)`. */
export function describeCompleted({ counts }: LoadRun): string {
  const { scheduled, completed } = counts;
  const share = scheduled > 0 ? ` (${formatShare(completed / scheduled)})` : "";
  return `${formatCount(completed)} of ${formatCount(scheduled)}${share}`;
}

/** Why two runs should not be compared; empty if nothing speaks against it. */
export function comparisonWarnings(a: LoadRun, b: LoadRun): string[] {
  const warnings = [["A", a] as const, ["B", b] as const].flatMap(([side, { validity, isCut }]) => [
    ...(validity === "valid"
      ? []
      : [`${side} is ${validity === "invalid" ? "invalid" : "of unknown validity"}`]),
    ...(isCut ? [`${side} began before the range`] : []),
  ]);
  if (a.schedule !== b.schedule) warnings.push("the schedules differ");
  if (a.target !== b.target) warnings.push("the targets differ");
  return warnings;
}

interface RunComparisonJson {
  a: { unit: string | null };
  permutation_test: { p_value: number } | null;
  quantiles: { q: number; a: BracketJson; b: BracketJson; significant: boolean }[];
}

/** The response times of two runs, compared in a sentence. */
export async function compareRuns(a: LoadRun, b: LoadRun, signal: AbortSignal): Promise<string> {
  const json = await getJson<RunComparisonJson>("/v1/compare", comparison(a, b), signal);
  const pairs = json.quantiles.map((one) => ({
    ...one,
    a: parseBracket(one.a),
    b: parseBracket(one.b),
  }));
  return describeComparison(pairs, json.permutation_test?.p_value ?? null, json.a.unit ?? "ns");
}

/** Settings of the view Compare, and parameters of `/v1/compare`. */
export function comparison(a: LoadRun, b: LoadRun): Record<string, string> {
  const [rangeA, rangeB] = [runRange(a), runRange(b)];
  return {
    a: loadSelector(a, "response"),
    b: loadSelector(b, "response"),
    from: rangeA.from,
    to: rangeA.to,
    from_b: rangeB.from,
    to_b: rangeB.to,
  };
}
