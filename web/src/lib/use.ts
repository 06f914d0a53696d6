/**
 * A host by utilisation, saturation and errors: what is asked of its collector's series, and what is made of the answers. The rows
 * are those of docs/host.md. What is not collected is said with the reason; it is never a nought.
 */

import { Refused } from "./api";
import type { Answer } from "./question";
import { quoted } from "./selector";
import { length } from "./time";
import { count, percent, value } from "./unit";

export const COLUMNS = ["utilisation", "saturation", "errors"] as const;
export type Column = (typeof COLUMNS)[number];
export type Resource = "processors" | "memory" | "disk" | "network" | "tcp" | "machine";

/**
 * How windows become a figure. Of counters: `share`, seconds in each second; `rate`, how many in each second; `count`, how many in
 * all. Of gauges: `part`, of a whole; `level`.
 */
type How = "share" | "rate" | "count" | "part" | "level";

/** Series of the host that is looked at, and what a counter of it counted in a window. */
interface Writing {
  pick(metric: string, labels?: string): string;
  counted(metric: string, labels?: string): string;
  window: string;
}

/** One figure of a resource, for each of its devices where there are several. */
export interface Figure {
  resource: Resource;
  column: Column;
  name: string;
  how: How;
  unit: string;
  /** What stands behind the number and its unit; of one alone what is before the bar. */
  after: string;
  /** Without series of this name there is no such figure. */
  metric: string;
  text(writing: Writing): string;
}

const BUSY = 'mode!~"idle|iowait"';

type Of = [resource: Resource, column: Column, name: string, metric: string];

/** What a counter counted, with its unit and what is said behind it. */
function counter(
  [resource, column, name, metric]: Of,
  how: How,
  [unit, after]: [string, string],
  labels = "",
  by = "",
): Figure {
  const text = ({ counted }: Writing) => `sum${by && ` by (${by})`} (${counted(metric, labels)})`;
  return { resource, column, name, how, unit, after, metric, text };
}

function gauge([resource, column, name, metric]: Of, after: string, labels = ""): Figure {
  const text = ({ pick, window }: Writing) =>
    `max(max_over_time(${pick(metric, labels)}[${window}]))`;
  return { resource, column, name, how: "level", unit: "", after, metric, text };
}

function processors(
  [resource, column, name]: [Resource, Column, string],
  over: "avg" | "max",
  modes: string,
): Figure {
  const metric = "host_cpu_seconds_total";
  const text = ({ counted }: Writing) => `${over}(sum by (cpu) (${counted(metric, modes)}))`;
  return { resource, column, name, how: "share", unit: "", after: "", metric, text };
}

function pressure(resource: Resource, of: string, name: string): Figure {
  return counter(
    [resource, "saturation", name, "host_pressure_seconds_total"],
    "share",
    ["", " of the time"],
    `resource="${of}",share="some"`,
  );
}

export const FIGURES: readonly Figure[] = [
  processors(["processors", "utilisation", "busy"], "avg", BUSY),
  processors(["processors", "utilisation", "the busiest one"], "max", BUSY),
  pressure("processors", "cpu", "some task waited"),
  gauge(["processors", "saturation", "load of 1 min", "host_load"], " task|s", 'minutes="1"'),
  {
    ...gauge(["memory", "utilisation", "in use", "host_memory_available_bytes"], ""),
    how: "part",
    text: ({ pick, window }) =>
      `1 - min(min_over_time(${pick("host_memory_available_bytes")}[${window}])) / max(max_over_time(${pick("host_memory_total_bytes")}[${window}]))`,
  },
  pressure("memory", "memory", "some task waited"),
  counter(
    ["memory", "saturation", "waited to take it back", "host_allocation_stalls_total"],
    "count",
    ["", " time|s"],
  ),
  counter(["memory", "saturation", "swapped out", "host_swap_out_pages_total"], "count", [
    "",
    " page|s",
  ]),
  counter(["memory", "errors", "killed for want of it", "host_oom_kills_total"], "count", [
    "",
    " process|es",
  ]),
  counter(
    ["disk", "utilisation", "busy", "host_disk_busy_seconds_total"],
    "share",
    ["", ""],
    "",
    "device",
  ),
  counter(
    ["disk", "saturation", "under way", "host_disk_queue_seconds_total"],
    "rate",
    ["", " request|s"],
    "",
    "device",
  ),
  pressure("disk", "io", "some task waited, of any disk"),
  counter(
    ["disk", "errors", "failed", "host_block_io_errors_total"],
    "count",
    ["", " request|s"],
    "",
    "device",
  ),
  counter(
    ["network", "utilisation", "received", "host_network_bytes_total"],
    "rate",
    ["B", "/s"],
    'direction="receive"',
    "interface",
  ),
  counter(
    ["network", "utilisation", "sent", "host_network_bytes_total"],
    "rate",
    ["B", "/s"],
    'direction="transmit"',
    "interface",
  ),
  counter(
    ["network", "saturation", "dropped", "host_network_drops_total"],
    "count",
    ["", " packet|s"],
    "",
    "interface",
  ),
  counter(
    ["network", "errors", "with errors", "host_network_errors_total"],
    "count",
    ["", " packet|s"],
    "",
    "interface",
  ),
  gauge(["tcp", "utilisation", "established", "host_tcp_established"], " connection|s"),
  counter(["tcp", "saturation", "sent again", "host_tcp_segments_retransmitted_total"], "count", [
    "",
    " segment|s",
  ]),
  counter(
    ["tcp", "saturation", "dropped, their queue full", "host_tcp_listen_overflows_total"],
    "count",
    ["", " connection|s"],
  ),
  counter(["tcp", "errors", "came damaged", "host_tcp_errors_received_total"], "count", [
    "",
    " segment|s",
  ]),
  processors(["machine", "saturation", "taken by the hypervisor"], "avg", 'mode="steal"'),
];

/** How much time the readings of a window cover: the processors' own, idle included, goes as a clock does. */
const CLOCK = processors(["machine", "utilisation", "clock"], "avg", "");

/** Series of a host: `host_load{host="web-1"}`. */
export function selector(metric: string, host: string, labels = ""): string {
  return `${metric}{host=${quoted(host)}${labels && `,${labels}`}}`;
}

function written(figure: Figure, host: string, range: string, window: string): string {
  const pick = (metric: string, labels?: string) => selector(metric, host, labels);
  return figure.text({
    pick,
    counted: (metric, labels) => `${range}(${pick(metric, labels)}[${window}])`,
    window,
  });
}

/** What is asked about a host in windows of so many milliseconds: the clock, then each figure. */
export function questions(host: string, window: number): string[] {
  return [CLOCK, ...FIGURES].map((figure) =>
    written(figure, host, "exact_increase", `${window}ms`),
  );
}

/** A figure as it is shown. */
export interface Shown {
  name: string;
  /** With its unit; or why there is none. */
  text: string;
  isKnown: boolean;
  /** What the text is of its windows, and the worst of them. */
  note: string;
  /** Of each window, where 1 is all there can be or the most there was; null where nothing was read. Empty if all are nought. */
  course: (number | null)[];
  /** What may be asked in Explore about it. */
  question: string;
}

export interface Row {
  resource: Resource;
  /** Which disk or interface; else empty. */
  device: string;
  cells: Record<Column, Shown[]>;
}

/** What a host told. */
export interface Told {
  host: string;
  /** Names of its metrics. */
  metrics: ReadonlySet<string>;
  disks: readonly string[];
  interfaces: readonly string[];
  /** Answers to `questions`, or why there are none. */
  answers: readonly (Answer | Refused)[];
  /** Moments that windows end at, and how long they are, in milliseconds. */
  ends: readonly number[];
  window: number;
  /** Why block I/O is not measured. */
  withoutBlockIo: string;
}

/** Disks and interfaces at the most: more are in Explore. */
export const DEVICES = 16;

export function rows(told: Told): Row[] {
  // Of no disk it is known as little as of one that says nothing: there is a row for that.
  const each = (devices: readonly string[]) =>
    devices.length > 0 ? devices.slice(0, DEVICES) : [""];
  const wanted: readonly (readonly [Resource, string])[] = [
    ["processors", ""],
    ["memory", ""],
    ...each(told.disks).map((device) => ["disk", device] as const),
    ...each(told.interfaces).map((device) => ["network", device] as const),
    ["tcp", ""],
    ["machine", ""],
  ];
  return wanted.map(([resource, device]) => {
    const row: Row = { resource, device, cells: { utilisation: [], saturation: [], errors: [] } };
    FIGURES.forEach(
      (figure, at) =>
        figure.resource === resource &&
        row.cells[figure.column].push(shown(figure, told.answers[at + 1], device, told)),
    );
    return row;
  });
}

/** Seconds that the readings of all windows cover; null if nobody knows. */
export function covered(told: Told): number | null {
  const clock = along(told.answers[0], "", told.ends).filter((one) => one !== null);
  return clock.length > 0 ? clock.reduce((a, b) => a + b, 0) : null;
}

function shown(
  figure: Figure,
  answer: Answer | Refused | undefined,
  device: string,
  told: Told,
): Shown {
  const unknown = (text: string): Shown => ({
    name: figure.name,
    text,
    isKnown: false,
    note: "",
    course: [],
    question,
  });
  const question = written(figure, told.host, "rate", "5m");
  if (!told.metrics.has(figure.metric)) {
    const isBlockIo = figure.metric.startsWith("host_block_io");
    return unknown(
      `not collected: ${isBlockIo ? told.withoutBlockIo : "procfs is off in the settings of that host, or its kernel does not tell it"}`,
    );
  }
  if (answer instanceof Refused) return unknown(`not answered: ${answer.message}`);
  const windows = along(answer, device, told.ends);
  if (windows.every((one) => one === null)) return unknown("not read in this time");
  const isBySecond = figure.how === "share" || figure.how === "rate";
  const clock = isBySecond ? along(told.answers[0], "", told.ends) : windows.map(() => 1);
  const pairs = windows.map((counted, at) => ({ counted, seconds: clock[at] ?? null }));
  const known = pairs.filter(
    (pair): pair is { counted: number; seconds: number } =>
      pair.counted !== null && pair.seconds !== null && pair.seconds > 0,
  );
  if (known.length === 0)
    return unknown("not known: without times of processors there is no telling how long was read");
  const each = pairs.map(({ counted, seconds }) =>
    counted !== null && seconds !== null && seconds > 0 ? counted / seconds : null,
  );
  const most = Math.max(...known.map((pair) => pair.counted / pair.seconds));
  const all = known.reduce((sum, pair) => sum + pair.counted, 0);
  const isPart = figure.how === "share" || figure.how === "part";
  const say = (number: number) => {
    // Ticks of a clock: more than all is all.
    const text = isPart
      ? percent(Math.min(Math.max(number, 0), 1))
      : figure.how === "count"
        ? count(number)
        : value(number, figure.unit);
    const [one, more = ""] = figure.after.split("|");
    return text + one + (text === "1" ? "" : more);
  };
  const worst = `${say(most)} in the worst ${length(told.window)}`;
  const [text, note] = isBySecond
    ? [say(all / known.reduce((sum, pair) => sum + pair.seconds, 0)), `on average, ${worst}`]
    : figure.how === "count"
      ? [say(all), `in all, ${worst}`]
      : [say(known[known.length - 1]!.counted), `at the end, ${say(most)} at the most`];
  // Of nothing there is no course, and no window is worse than another.
  if (most <= 0) return { name: figure.name, text, isKnown: true, note: "", course: [], question };
  return {
    name: figure.name,
    text,
    isKnown: true,
    note,
    course: each.map((one) => one && Math.min(one / (isPart ? 1 : most), 1)),
    question,
  };
}

/** What an answer says of a device at each moment. */
function along(
  answer: Answer | Refused | undefined,
  device: string,
  ends: readonly number[],
): (number | null)[] {
  const streams = answer && !(answer instanceof Refused) ? answer.streams : [];
  // What is not told by device is of all of them.
  const of = streams.find(
    ({ labels }) => (labels["device"] ?? labels["interface"] ?? device) === device,
  );
  const at = new Map(
    of?.points.map(({ time, value }) => [
      Math.round(time),
      value && "estimate" in value ? value.estimate : null,
    ]),
  );
  return ends.map((end) => at.get(end) ?? null);
}

/** Programs in the kernel, with how the server begins to say why one is not at work. */
const PROGRAMS = { block_io: "block I/O has", run_queue: "there are no times" } as const;

/**
 * Why there is nothing of what a program in the kernel measures. `isAtWork` is what the host says: null if it did not, nothing if it
 * never does; `notes` are the server's, which are about this host if there is no other.
 */
export function without(
  program: keyof typeof PROGRAMS,
  isAtWork: boolean | null | undefined,
  notes: readonly string[],
): string {
  if (isAtWork === undefined) return `${program} is off in the settings of that host`;
  if (isAtWork === null) return "that host told nothing in this time";
  if (isAtWork) return "nothing of it has happened yet";
  return (
    notes.find((note) => note.startsWith(PROGRAMS[program])) ??
    "its kernel does not let topdeck's program in, for a reason that host_note has"
  );
}

/** Those notes that `without` shows in no place: they are about other things than programs in the kernel. */
export function otherNotes(notes: readonly string[]): string[] {
  return notes.filter((note) => !Object.values(PROGRAMS).some((begin) => note.startsWith(begin)));
}
