/**
 * Programs of a host that record into shared memory, and what they have in flight: asked of the series that its collector tells of them
 * (docs/host.md), like everything else.
 */

import { ask, isAborted, type Series } from "./api";
import { Distribution } from "./distribution";
import { question, type Answer } from "./question";
import { quoted } from "./selector";
import { selector } from "./use";
import { length, written } from "./time";

/** Ages of operations in flight, as the collector has them. What it does not know the age of comes last. */
export const AGES = ["below 1s", "1s to 10s", "10s to 60s", "60s and more", "unknown"] as const;
export const AGE_NAMES = ["< 1 s", "1–10 s", "10–60 s", "≥ 60 s", "age unknown"] as const;

/** What a process timed most often in the last part of the time. */
export interface Timing {
  metric: string;
  unit: string;
  distribution: Distribution;
  /** A selector of it. */
  selector: string;
}

export interface Program {
  /** What tells it from all others. */
  id: string;
  process: string;
  pid: string;
  /** It is in a namespace of processes that has numbers of its own. */
  isNamespaced: boolean;
  /** PCP's or the JVM's, if it is not topdeck's own. */
  format: string;
  /** Null if it is in a namespace that cannot be looked into. */
  isUp: boolean | null;
  timing: Timing | null;
  /** Operations in flight, by age as in `AGES`; null if it does not say. */
  inFlight: number[] | null;
  /** Seconds; null if there are none. */
  oldest: number | null;
  /** How it ended, and when in milliseconds, if it did and that was said. */
  end: { text: string; time: number } | null;
}

export interface Programs {
  /** Those that run, or of which that is not known; the busiest first. */
  programs: Program[];
  /** Those that ended, the latest first. */
  ended: Program[];
  /** Milliseconds at the end of the time that rates and times are of. */
  recent: number;
  /** Why times are not told of all of them; or empty. */
  without: string;
}

/** Metrics that are looked at for the busiest. */
const METRICS = 48;
const TIMES = ["ns", "us", "µs", "ms", "s"];
const MS_IN_S = 1e3;
const NS_IN_MS = 1e6;

type Labels = Record<string, string>;

/** Which process it is: of these labels, `pid_namespace` and `format` stand only where they are needed. */
const WHOSE = ["process", "pid", "pid_namespace", "format"] as const;
const key = (labels: Labels) => JSON.stringify(WHOSE.map((name) => labels[name] ?? ""));
const BY = `by (${WHOSE.join(", ")})`;

/** What is asked about processes of a host: up or not, in flight by age, and how old the oldest is, as last told in so many milliseconds. */
export function questions(
  host: string,
  span: number,
): [up: string, inFlight: string, oldest: string] {
  const last = (metric: string) => `last_over_time(${selector(metric, host)}[${span}ms])`;
  return [
    `max ${BY} (${last("process_up")})`,
    `sum by (${[...WHOSE, "age"].join(", ")}) (${last("process_in_flight")})`,
    `max ${BY} (${last("process_in_flight_oldest_seconds")})`,
  ];
}

/** What a metric counted in the last so many milliseconds, by process. */
export function timed(metric: string, host: string, recent: number): string {
  return `sum ${BY} (exact_increase({__name__=${quoted(metric)},host=${quoted(host)},process!=""}[${recent}ms]))`;
}

/** Processes at the end of a time of which the last part is of interest. */
export async function programs(
  host: string,
  [from, to]: readonly [number, number],
  recent: number,
  signal: AbortSignal,
): Promise<Programs> {
  const at = (text: string) => question(text, "promql", [to, to], recent, signal);
  const [up, inFlight, oldest] = await Promise.all(questions(host, to - from).map(at));
  if (!up || !inFlight || !oldest) throw new Error("BUG: three questions");
  const found = new Map<string, Program>();
  const program = (labels: Labels): Program => {
    const name = key(labels);
    const known = found.get(name) ?? {
      id: name,
      process: labels["process"] ?? "",
      pid: labels["pid"] ?? "",
      isNamespaced: (labels["pid_namespace"] ?? "") !== "",
      format: labels["format"] ?? "",
      isUp: null,
      timing: null,
      inFlight: null,
      oldest: null,
      end: null,
    };
    found.set(name, known);
    return known;
  };
  for (const [labels, value] of numbers(up)) program(labels).isUp = value > 0;
  for (const [labels, value] of numbers(inFlight)) {
    const age = (AGES as readonly string[]).indexOf(labels["age"] ?? "");
    const ages = (program(labels).inFlight ??= AGES.map(() => 0));
    if (age >= 0) ages[age]! += value;
  }
  for (const [labels, value] of numbers(oldest)) {
    const of = program(labels);
    of.inFlight ??= AGES.map(() => 0);
    of.oldest = value > 0 ? value : null;
  }
  const isAnyOver = [...found.values()].some((one) => one.isUp === false);
  const [without] = await Promise.all([
    found.size > 0 ? times(host, recent, at, program, signal) : "",
    isAnyOver ? ends(host, [from, to], found, signal) : undefined,
  ]);
  const all = [...found.values()].sort(byInterest);
  const ended = all
    .filter((one) => one.isUp === false)
    .sort((a, b) => (b.end?.time ?? 0) - (a.end?.time ?? 0));
  return { programs: all.filter((one) => one.isUp !== false), ended, recent, without };
}

/** Says of those that ended how they did. */
async function ends(
  host: string,
  [from, to]: readonly [number, number],
  found: ReadonlyMap<string, Program>,
  signal: AbortSignal,
): Promise<void> {
  interface Told {
    texts: { labels: Labels; time_ns: number; text: string }[];
  }
  const parameters = {
    selector: selector("process_end", host),
    from: written(from),
    to: written(to),
    limit: 10_000,
  };
  const told = await ask<Told>("/v1/texts", parameters, signal).catch(nothing);
  for (const { labels, time_ns, text } of told?.texts ?? []) {
    const of = found.get(key(labels));
    if (of) of.end = { text, time: time_ns / NS_IN_MS };
  }
}

/** Gives each process its busiest metric of times. Says if some were not looked at. */
async function times(
  host: string,
  recent: number,
  at: (text: string) => Promise<Answer>,
  program: (labels: Labels) => Program,
  signal: AbortSignal,
): Promise<string> {
  const kinds = `{host=${quoted(host)},process!="",__kind="cumulative-histogram"}`;
  const told = await ask<{ found: number; series: Series[] }>(
    "/v1/series",
    { selector: kinds, limit: 10_000 },
    signal,
  );
  const names = [
    ...new Set(told.series.filter((one) => TIMES.includes(one.unit ?? "")).map((one) => one.name)),
  ].sort();
  const answers = await Promise.all(
    names.slice(0, METRICS).map((name) => at(timed(name, host, recent)).catch(nothing)),
  );
  answers.forEach((answer, place) => {
    const metric = names[place]!;
    for (const { labels, points } of answer?.streams ?? []) {
      const distribution = points.at(-1)?.value;
      if (!(distribution instanceof Distribution) || distribution.isEmpty) continue;
      const of = program(labels);
      if (of.timing && of.timing.distribution.count >= distribution.count) continue;
      const whose = WHOSE.filter((name) => labels[name]).map(
        (name) => `${name}=${quoted(labels[name]!)}`,
      );
      of.timing = {
        metric,
        unit: answer!.unit,
        distribution,
        selector: `{__name__=${quoted(metric)},host=${quoted(host)},${whose.join(",")}}`,
      };
    }
  });
  const left = names.length - METRICS;
  return left > 0 || told.found > told.series.length
    ? `Of ${names.length} metrics of times ${METRICS} were looked at for the busiest: see Explore for others.`
    : "";
}

/** The last numbers of an answer, with their labels. */
function numbers(answer: Answer): [Labels, number][] {
  return answer.streams.flatMap(({ labels, points }) => {
    const last = points.at(-1)?.value;
    return last && "estimate" in last ? [[labels, last.estimate] as [Labels, number]] : [];
  });
}

/** What cannot be had of one metric does not stand in the way of the others. */
function nothing(error: unknown): null {
  if (isAborted(error)) throw error;
  return null;
}

function byInterest(a: Program, b: Program): number {
  const busy = (of: Program) => of.timing?.distribution.count ?? 0;
  return busy(b) - busy(a) || a.process.localeCompare(b.process) || Number(a.pid) - Number(b.pid);
}

/** How many in each second, as it is written: `1.2k/s`. */
export function perSecond(timing: Timing, recent: number): number {
  return timing.distribution.count / (recent / MS_IN_S);
}

/** Whose operations they are, and how long what is said is about: for people. */
export function caption({ recent }: Programs): string {
  return `Rates and times are those of the last ${length(recent)} of the time above.`;
}
