/**
 * A host by the USE method (Brendan Gregg): utilisation, saturation and errors of each resource, as
 * queries over the collector's series and as stats from their results. The rows are those of
 * docs/host.md. A stat without samples shows the reason, never 0.
 */

import { ApiError } from "./api";
import type { QueryResult } from "./query";
import { quoted } from "./selector";
import { formatDuration } from "./time";
import { formatCount, formatShare, formatValue } from "./unit";

export const CATEGORIES = ["utilisation", "saturation", "errors"] as const;
export type UseCategory = (typeof CATEGORIES)[number];
export type ResourceKind = "cpu" | "memory" | "disk" | "network" | "tcp" | "machine";

/**
 * How windows are combined. Counters: `share` in seconds per second, `rate` per second, `count` in
 * total. Gauges: `fraction` of a capacity, `level`.
 */
type ValueKind = "share" | "rate" | "count" | "fraction" | "level";

/** Selectors of one host, and PromQL for the increase of a counter in a window. */
interface PromqlBuilder {
  select(metric: string, labels?: string): string;
  increase(metric: string, labels?: string): string;
  window: string;
}

/** One stat of a resource; for each device, if the resource has devices. */
export interface Stat {
  resource: ResourceKind;
  category: UseCategory;
  name: string;
  kind: ValueKind;
  unit: string;
  /** Text after number and unit, such as ` request|s`: the part after the bar is for the plural. */
  suffix: string;
  /** The stat needs a series of this name. */
  metric: string;
  promql(builder: PromqlBuilder): string;
}

type StatKey = [resource: ResourceKind, category: UseCategory, name: string, metric: string];

const BUSY = 'mode!~"idle|iowait"';

function counter(
  [resource, category, name, metric]: StatKey,
  kind: ValueKind,
  [unit, suffix]: [string, string],
  labels = "",
  by = "",
): Stat {
  const promql = ({ increase }: PromqlBuilder) =>
    `sum${by && ` by (${by})`} (${increase(metric, labels)})`;
  return { resource, category, name, kind, unit, suffix, metric, promql };
}

function gauge([resource, category, name, metric]: StatKey, suffix: string, labels = ""): Stat {
  const promql = ({ select, window }: PromqlBuilder) =>
    `max(max_over_time(${select(metric, labels)}[${window}]))`;
  return { resource, category, name, kind: "level", unit: "", suffix, metric, promql };
}

function cpu(
  [resource, category, name]: [ResourceKind, UseCategory, string],
  over: "avg" | "max",
  modes: string,
): Stat {
  const metric = "host_cpu_seconds_total";
  const promql = ({ increase }: PromqlBuilder) =>
    `${over}(sum by (cpu) (${increase(metric, modes)}))`;
  return { resource, category, name, kind: "share", unit: "", suffix: "", metric, promql };
}

/** Pressure stall information (Documentation/accounting/psi.rst). */
function pressure(resource: ResourceKind, of: string, name: string): Stat {
  return counter(
    [resource, "saturation", name, "host_pressure_seconds_total"],
    "share",
    ["", " of time"],
    `resource="${of}",type="some"`,
  );
}

const MEMORY_IN_USE: Stat = {
  ...gauge(["memory", "utilisation", "in use", "host_memory_available_bytes"], ""),
  kind: "fraction",
  promql({ select, window }) {
    const available = `min(min_over_time(${select("host_memory_available_bytes")}[${window}]))`;
    const total = `max(max_over_time(${select("host_memory_total_bytes")}[${window}]))`;
    return `1 - ${available} / ${total}`;
  },
};

export const STATS: readonly Stat[] = [
  cpu(["cpu", "utilisation", "CPU busy"], "avg", BUSY),
  cpu(["cpu", "utilisation", "max per CPU"], "max", BUSY),
  pressure("cpu", "cpu", "PSI CPU some"),
  gauge(
    ["cpu", "saturation", "load average (1 min)", "host_load_average"],
    " task|s",
    'minutes="1"',
  ),
  MEMORY_IN_USE,
  pressure("memory", "memory", "PSI memory some"),
  counter(["memory", "saturation", "reclaim stalls", "host_allocation_stalls_total"], "count", [
    "",
    "",
  ]),
  counter(["memory", "saturation", "swap-out", "host_swap_out_pages_total"], "count", [
    "",
    " page|s",
  ]),
  counter(["memory", "errors", "OOM kills", "host_oom_kills_total"], "count", ["", ""]),
  counter(
    ["disk", "utilisation", "I/O time", "host_disk_io_time_seconds_total"],
    "share",
    ["", " of time"],
    "",
    "device",
  ),
  counter(
    ["disk", "saturation", "avg queue length", "host_disk_weighted_io_time_seconds_total"],
    "rate",
    ["", " request|s"],
    "",
    "device",
  ),
  pressure("disk", "io", "PSI I/O some (all disks)"),
  counter(
    ["disk", "errors", "I/O errors", "host_block_io_errors_total"],
    "count",
    ["", " request|s"],
    "",
    "device",
  ),
  counter(
    ["network", "utilisation", "receive", "host_network_bytes_total"],
    "rate",
    ["B", "/s"],
    'direction="receive"',
    "interface",
  ),
  counter(
    ["network", "utilisation", "transmit", "host_network_bytes_total"],
    "rate",
    ["B", "/s"],
    'direction="transmit"',
    "interface",
  ),
  counter(
    ["network", "saturation", "drops", "host_network_drops_total"],
    "count",
    ["", " packet|s"],
    "",
    "interface",
  ),
  counter(
    ["network", "errors", "errors", "host_network_errors_total"],
    "count",
    ["", " packet|s"],
    "",
    "interface",
  ),
  gauge(["tcp", "utilisation", "established", "host_tcp_established"], " connection|s"),
  counter(["tcp", "saturation", "retransmits", "host_tcp_segments_retransmitted_total"], "count", [
    "",
    " segment|s",
  ]),
  counter(["tcp", "saturation", "listen overflows", "host_tcp_listen_overflows_total"], "count", [
    "",
    " connection|s",
  ]),
  counter(["tcp", "errors", "receive errors (InErrs)", "host_tcp_in_errors_total"], "count", [
    "",
    " segment|s",
  ]),
  cpu(["machine", "saturation", "CPU steal"], "avg", 'mode="steal"'),
];

/** Time that a window's samples cover: CPU time over all modes, idle included, is wall time. */
const CLOCK = cpu(["machine", "utilisation", "clock"], "avg", "");

/** Series of a host: `host_load_average{host="web-1"}`. */
export function hostSelector(metric: string, host: string, labels = ""): string {
  return `${metric}{host=${quoted(host)}${labels && `,${labels}`}}`;
}

function buildQuery(stat: Stat, host: string, range: string, window: string): string {
  const select = (metric: string, labels?: string) => hostSelector(metric, host, labels);
  const increase = (metric: string, labels?: string) =>
    `${range}(${select(metric, labels)}[${window}])`;
  return stat.promql({ select, increase, window });
}

/** Queries in windows of so many milliseconds: the clock, then each stat. */
export function buildQueries(host: string, window: number): string[] {
  return [CLOCK, ...STATS].map((stat) => buildQuery(stat, host, "exact_increase", `${window}ms`));
}

/** A stat as the page shows it. */
export interface StatView {
  name: string;
  /** With its unit; or the reason why there is no value. */
  text: string;
  isKnown: boolean;
  /** How windows are combined, and the maximum of a window. */
  note: string;
  /** Each window, from 0 to the maximum at 1; null without samples. Empty if all are 0. */
  sparkline: (number | null)[];
  /** The query for Explore. */
  query: string;
}

export interface ResourceRow {
  resource: ResourceKind;
  /** Disk or interface; else empty. */
  device: string;
  cells: Record<UseCategory, StatView[]>;
}

/** Results of a host's queries. */
export interface HostData {
  host: string;
  /** Names of its metrics. */
  metrics: ReadonlySet<string>;
  disks: readonly string[];
  interfaces: readonly string[];
  /** Results of `buildQueries`, or their errors. */
  results: readonly (QueryResult | ApiError)[];
  /** Ends of the windows, and their length, in milliseconds. */
  ends: readonly number[];
  window: number;
  /** Why block I/O is not measured. */
  blockIoReason: string;
}

/** Disks, or interfaces, on the page: the rest is in Explore. */
export const MAX_DEVICES = 16;

export function buildRows(data: HostData): ResourceRow[] {
  // A host without known disks has one row, which says why.
  const each = (devices: readonly string[]) =>
    devices.length > 0 ? devices.slice(0, MAX_DEVICES) : [""];
  const keys: readonly (readonly [ResourceKind, string])[] = [
    ["cpu", ""],
    ["memory", ""],
    ...each(data.disks).map((device) => ["disk", device] as const),
    ...each(data.interfaces).map((device) => ["network", device] as const),
    ["tcp", ""],
    ["machine", ""],
  ];
  return keys.map(([resource, device]) => {
    const cells: ResourceRow["cells"] = { utilisation: [], saturation: [], errors: [] };
    STATS.forEach((stat, index) => {
      if (stat.resource !== resource) return;
      cells[stat.category].push(viewStat(stat, data.results[index + 1], device, data));
    });
    return { resource, device, cells };
  });
}

/** Seconds that samples cover; null if unknown. */
export function coveredSeconds({ results, ends }: HostData): number | null {
  const clock = valuesAt(results[0], "", ends).filter((one) => one !== null);
  return clock.length > 0 ? clock.reduce((a, b) => a + b, 0) : null;
}

function viewStat(
  stat: Stat,
  result: QueryResult | ApiError | undefined,
  device: string,
  data: HostData,
): StatView {
  const { name, kind } = stat;
  const query = buildQuery(stat, data.host, "rate", "5m");
  const missing = (text: string): StatView => {
    return { name, text, isKnown: false, note: "", sparkline: [], query };
  };
  if (!data.metrics.has(stat.metric)) {
    const isBlockIo = stat.metric.startsWith("host_block_io");
    const reason = isBlockIo
      ? data.blockIoReason
      : "procfs is disabled in that host's [host] settings, or its kernel lacks it";
    return missing(`not collected: ${reason}`);
  }
  if (result instanceof ApiError) return missing(`query failed: ${result.message}`);
  const increases = valuesAt(result, device, data.ends);
  if (increases.every((one) => one === null)) return missing("no samples in the range");
  const isPerSecond = kind === "share" || kind === "rate";
  const clock = isPerSecond ? valuesAt(data.results[0], "", data.ends) : increases.map(() => 1);
  const windows = increases.map((increase, index) => {
    const seconds = clock[index] ?? null;
    return increase !== null && seconds !== null && seconds > 0 ? { increase, seconds } : null;
  });
  const known = windows.filter((one) => one !== null);
  if (known.length === 0) {
    return missing(
      "unknown: no CPU time samples in the range, so the observation period cannot be computed",
    );
  }
  const values = windows.map((one) => one && one.increase / one.seconds);
  const max = Math.max(...known.map((one) => one.increase / one.seconds));
  const total = known.reduce((sum, one) => sum + one.increase, 0);
  const isFraction = kind === "share" || kind === "fraction";
  const format = (number: number) => {
    // Clock ticks are coarse: a share above 1 is 1.
    const text = isFraction
      ? formatShare(Math.min(Math.max(number, 0), 1))
      : kind === "count"
        ? formatCount(number)
        : formatValue(number, stat.unit);
    const [singular, plural = ""] = stat.suffix.split("|");
    return text + singular + (text === "1" ? "" : plural);
  };
  const maximum = `max ${format(max)} in ${formatDuration(data.window)}`;
  const seconds = known.reduce((sum, one) => sum + one.seconds, 0);
  const [text, note] = isPerSecond
    ? [format(total / seconds), `mean; ${maximum}`]
    : kind === "count"
      ? [format(total), `total; ${maximum}`]
      : [format(known[known.length - 1]!.increase), `last; max ${format(max)}`];
  // Zeros have no sparkline and no maximum.
  if (max <= 0) return { name, text, isKnown: true, note: "", sparkline: [], query };
  const sparkline = values.map((one) => one && Math.min(one / (isFraction ? 1 : max), 1));
  return { name, text, isKnown: true, note, sparkline, query };
}

/** Values of a device at each window's end. */
function valuesAt(
  result: QueryResult | ApiError | undefined,
  device: string,
  ends: readonly number[],
): (number | null)[] {
  const all = result && !(result instanceof ApiError) ? result.series : [];
  // A series without a device is that of all devices.
  const series = all.find(
    ({ labels }) => (labels["device"] ?? labels["interface"] ?? device) === device,
  );
  const byTime = new Map(
    series?.points.map(({ time, value }) => [
      Math.round(time),
      value && "estimate" in value ? value.estimate : null,
    ]),
  );
  return ends.map((end) => byTime.get(end) ?? null);
}

/** BPF programs, and the beginning of the server's notes about them. */
const BPF_NOTES = { block_io: "block I/O has", run_queue: "there are no times" } as const;
export type BpfProgram = keyof typeof BPF_NOTES;

/**
 * Why a BPF program's metric is missing. `isLoaded` is `host_bpf_available`: null without samples,
 * undefined without a series. `notes` are the server's; they are about this host if it is the only
 * one.
 */
export function missingReason(
  program: BpfProgram,
  isLoaded: boolean | null | undefined,
  notes: readonly string[],
): string {
  if (isLoaded === undefined) return `${program} is disabled in that host's [host] settings`;
  if (isLoaded === null) return "no data from this host in the range";
  if (isLoaded) return "no events yet";
  const note = notes.find((note) => note.startsWith(BPF_NOTES[program]));
  return (
    note ?? "the BPF program cannot be loaded on that host; see its metric host_collector_warning"
  );
}

/** Notes that `missingReason` never returns: those about anything but BPF programs. */
export function unrelatedNotes(notes: readonly string[]): string[] {
  const prefixes = Object.values(BPF_NOTES);
  return notes.filter((note) => !prefixes.some((prefix) => note.startsWith(prefix)));
}
