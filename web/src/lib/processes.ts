/**
 * Processes of the server's host, joined with the programs that publish metrics: the rows of one
 * table, their order, and the filter.
 */

import { getJson } from "./api";
import { compareGenerations, rateOf, type Program } from "./programs";

/** A process as the host's kernel shows it. */
export interface Process {
  pid: number;
  name: string;
  /** State letter of /proc/PID/stat. */
  state: string;
  threads: number;
  /** CPUs used since the previous sample; null if there is none. */
  cpu_cores: number | null;
  resident_bytes: number;
  /** Labels of its stored series, which have no PID; `generation` is null if it has none yet. */
  program: { process: string; generation: string | null; format: string } | null;
}

/** All of them, by the latest sample. */
export interface ProcessList {
  /** Null if processes are not collected; `reason` says why. */
  host: string | null;
  reason: string | null;
  /** Seconds that `cpu_cores` covers. */
  interval_seconds: number | null;
  total: number;
  processes: Process[];
}

/** A process, a program, or both. */
export interface ProcessRow {
  id: string;
  name: string;
  /** Empty for a process that the server's host does not run now. */
  pid: string;
  /** Empty for a process without stored series. */
  generation: string;
  process: Process | null;
  program: Program | null;
}

/** Columns, and values of the setting `sort`. */
export const SORT_KEYS = [
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
export type SortKey = (typeof SORT_KEYS)[number];

/** Terms of ps(1). */
const STATES: Record<string, string> = {
  R: "running",
  S: "sleeping",
  D: "disk sleep",
  I: "idle",
  T: "stopped",
  t: "traced",
  Z: "zombie",
  X: "dead",
  P: "parked",
};

export async function fetchProcesses(signal: AbortSignal): Promise<ProcessList> {
  return getJson<ProcessList>("/v1/processes", {}, signal);
}

export function stateName({ state }: Process): string {
  return STATES[state] ?? state;
}

/** Joins processes with the generations that they hold. */
export function joinRows(list: ProcessList | null, programs: readonly Program[]): ProcessRow[] {
  const key = (of: { process: string; generation: string | null; format: string }) =>
    JSON.stringify([of.process, of.generation, of.format]);
  const processes = list?.processes ?? [];
  const holders = new Map(processes.map((one) => [one.program ? key(one.program) : "", one]));
  const joined = programs.map((program): ProcessRow => {
    const process = (program.isUp !== false && holders.get(key(program))) || null;
    const { id, process: name, generation } = program;
    return { id, name, pid: process ? String(process.pid) : "", generation, process, program };
  });
  const shown = new Set(joined.map(({ process }) => process));
  const others = processes.filter((one) => !shown.has(one));
  const rows = others.map((process): ProcessRow => {
    const pid = String(process.pid);
    return { id: pid, name: process.name, pid, generation: "", process, program: null };
  });
  return [...joined, ...rows];
}

/** Operations in flight; null if the program does not publish them. */
export function inFlightCount({ inFlight }: Program): number | null {
  return inFlight && inFlight.reduce((a, b) => a + b, 0);
}

/** Latencies of different units are compared in nanoseconds. */
const NANOSECONDS: Record<string, number> = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 };

function sortValue(row: ProcessRow, by: SortKey, recent: number): number | string | null {
  const { process, program } = row;
  const timing = program?.timing ?? null;
  const nanoseconds = (value: { estimate: number } | null | undefined) =>
    timing && value ? value.estimate * (NANOSECONDS[timing.unit] ?? 1) : null;
  switch (by) {
    case "name":
      return row.name.toLowerCase();
    case "state":
      return process && stateName(process);
    case "timing":
      return timing && timing.metric;
    case "cpu":
      return process && process.cpu_cores;
    case "memory":
      return process && process.resident_bytes;
    case "threads":
      return process && process.threads;
    case "rate":
      return timing && rateOf(timing, recent);
    case "p50":
      return nanoseconds(timing?.distribution.quantile(0.5));
    case "p99":
      return nanoseconds(timing?.distribution.quantile(0.99));
    case "max":
      return nanoseconds(timing?.distribution.max);
    case "flight":
      return program && inFlightCount(program);
    case "oldest":
      return program && program.oldest;
  }
}

/** Text is ascending by default, numbers are descending: the largest are of interest. */
export function isAscending(by: SortKey): boolean {
  return by === "name" || by === "state" || by === "timing";
}

/** Rows without a value come last in either direction; equal ones are by name and PID. */
export function sortRows(
  rows: readonly ProcessRow[],
  by: SortKey,
  isReversed: boolean,
  recent: number,
): ProcessRow[] {
  const values = new Map(rows.map((one) => [one, sortValue(one, by, recent)]));
  const sign = isAscending(by) !== isReversed ? 1 : -1;
  return [...rows].sort((a, b) => {
    const [x, y] = [values.get(a) ?? null, values.get(b) ?? null];
    if (x === null || y === null) return x === y ? compareNames(a, b) : x === null ? 1 : -1;
    const isText = typeof x === "string" || typeof y === "string";
    const compared = isText ? String(x).localeCompare(String(y)) : x - y;
    return compared === 0 ? compareNames(a, b) : sign * compared;
  });
}

function compareNames(a: ProcessRow, b: ProcessRow): number {
  const byName = a.name.localeCompare(b.name) || compareGenerations(a, b);
  return byName || Number(a.pid) - Number(b.pid);
}

/** Rows with every word of the filter in name, PID or generation, metric, format or state. */
export function filterRows(rows: readonly ProcessRow[], filter: string): ProcessRow[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [...rows];
  return rows.filter(({ name, pid, generation, process, program }) => {
    const state = process ? stateName(process) : "";
    const texts = [
      name,
      pid || `#${generation}`,
      program?.timing?.metric ?? "",
      program?.format ?? "",
      state,
    ];
    const lower = texts.map((text) => text.toLowerCase());
    return words.every((word) => lower.some((text) => text.includes(word)));
  });
}
