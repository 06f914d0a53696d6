/**
 * The processes of the host of the server, now, beside what programs tell of themselves: what stands in one table, in which order, and
 * which rows of it are shown.
 */

import { ask } from "./api";
import { perSecond, type Program } from "./programs";

/** A process as its host has it. */
export interface Process {
  pid: number;
  name: string;
  /** As the kernel writes it. */
  state: string;
  threads: number;
  /** Processors that it had since the reading before; null if that is not known. */
  processors: number | null;
  resident_bytes: number;
}

/** All of them, as they were a moment ago. */
export interface Table {
  /** Whose they are; null if they are not known, and then why. */
  host: string | null;
  why: string | null;
  /** Seconds that `processors` are of. */
  over_seconds: number | null;
  found: number;
  processes: Process[];
}

/** A row: a process, what it records, or both. */
export interface Line {
  id: string;
  name: string;
  pid: string;
  process: Process | null;
  program: Program | null;
}

export const SORTS = [
  "name",
  "cpu",
  "memory",
  "threads",
  "state",
  "timing",
  "rate",
  "p50",
  "p99",
  "max",
  "flight",
  "oldest",
] as const;
export type Sort = (typeof SORTS)[number];

const STATES: Record<string, string> = {
  R: "runs",
  S: "sleeps",
  D: "waits, unwakeable",
  I: "idle",
  T: "stopped",
  t: "traced",
  Z: "ended, not reaped",
  X: "ended",
  P: "parked",
};

export async function table(signal: AbortSignal): Promise<Table> {
  return ask<Table>("/v1/processes", {}, signal);
}

/** The state in a word or two. */
export function state(of: Process): string {
  return STATES[of.state] ?? of.state;
}

/** Rows of a table and of programs that run. A program in a namespace of its own has a number there that is another's here. */
export function lines(of: Table | null, programs: readonly Program[]): Line[] {
  const left = new Map((of?.processes ?? []).map((one) => [String(one.pid), one]));
  const told = programs.map((program): Line => {
    const process = program.isNamespaced ? null : (left.get(program.pid) ?? null);
    return { id: program.id, name: program.process, pid: program.pid, process, program };
  });
  for (const { process } of told) if (process) left.delete(String(process.pid));
  const rest = [...left.values()].map((process): Line => ({
    id: String(process.pid),
    name: process.name,
    pid: String(process.pid),
    process,
    program: null,
  }));
  return [...told, ...rest];
}

/** How many operations a program has in flight; null if it does not say. */
export function flying(of: Program): number | null {
  return of.inFlight && of.inFlight.reduce((a, b) => a + b, 0);
}

/** Times of different units are put beside each other as times. */
const NANOSECONDS: Record<string, number> = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 };

function key(of: Line, by: Sort, recent: number): number | string | null {
  const { process, program } = of;
  const timing = program?.timing ?? null;
  const time = (value: { estimate: number } | null | undefined) =>
    timing && value ? value.estimate * (NANOSECONDS[timing.unit] ?? 1) : null;
  switch (by) {
    case "name":
      return of.name.toLowerCase();
    case "state":
      return process && state(process);
    case "timing":
      return timing && timing.metric;
    case "cpu":
      return process && process.processors;
    case "memory":
      return process && process.resident_bytes;
    case "threads":
      return process && process.threads;
    case "rate":
      return timing && perSecond(timing, recent);
    case "p50":
      return time(timing?.distribution.quantile(0.5));
    case "p99":
      return time(timing?.distribution.quantile(0.99));
    case "max":
      return time(timing?.distribution.max);
    case "flight":
      return program && flying(program);
    case "oldest":
      return program && program.oldest;
  }
}

/** Names go up at first, and numbers down: what is most is looked for. */
export function isUp(by: Sort): boolean {
  return by === "name" || by === "state" || by === "timing";
}

/** In order; what is not known comes last either way, and equal ones by name and number. */
export function sorted(of: readonly Line[], by: Sort, isReversed: boolean, recent: number): Line[] {
  const keys = new Map(of.map((one) => [one, key(one, by, recent)]));
  const sign = isUp(by) !== isReversed ? 1 : -1;
  return [...of].sort((a, b) => {
    const [x, y] = [keys.get(a) ?? null, keys.get(b) ?? null];
    if (x === null || y === null) return x === y ? order(a, b) : x === null ? 1 : -1;
    const compared =
      typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y)) : x - y;
    return compared === 0 ? order(a, b) : sign * compared;
  });
}

function order(a: Line, b: Line): number {
  return a.name.localeCompare(b.name) || Number(a.pid) - Number(b.pid);
}

/** Those that have each word of the filter in their name, number, metric, format or state. */
export function filtered(of: readonly Line[], filter: string): Line[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [...of];
  return of.filter(({ name, pid, process, program }) => {
    const texts = [
      name,
      pid,
      program?.timing?.metric ?? "",
      program?.format ?? "",
      process ? state(process) : "",
    ].map((text) => text.toLowerCase());
    return words.every((word) => texts.some((text) => text.includes(word)));
  });
}
