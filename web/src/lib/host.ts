/** What a host tells in a stretch of time, asked of the server: figures for `use.ts`, and distributions beside them. */

import { ask, heatmap, isAborted, Refused, type Heatmap, type Series } from "./api";
import { programs, type Programs } from "./programs";
import { question } from "./question";
import { quoted } from "./selector";
import { otherNotes, questions, selector, without, type Row, type Told } from "./use";
import * as time from "./time";

/** A distribution of a resource, small. */
export interface Tile {
  title: string;
  selector: string;
  about: string;
  heatmap: Heatmap;
}

export interface Host extends Told {
  /** How much time was asked about, in milliseconds. */
  span: number;
  /** By the place of the row; where there should be some and are not, the reason. */
  tiles: ReadonlyMap<string, Tile[] | string>;
  /** Programs that record into shared memory; or why it is not known. */
  programs: Programs | Refused;
  /** What is not measured on the host of the server, in its words; where that is the only host, they stand with its resources. */
  notes: readonly string[];
}

/** Windows of a figure, columns of a small heatmap. */
const WINDOWS = 60;
const COLUMNS = 90;
/** Distributions at the most: others are in Explore. */
const TILES = 32;
/** Windows at the end that what is said of programs is about. */
const RECENT = 5;

/** Of every host that tells about itself. */
export async function hosts(signal: AbortSignal): Promise<string[]> {
  return values("host", '{__name=~"host_.*|process_up"}', signal);
}

/** Where tiles of a row are found. */
export function place(row: Pick<Row, "resource" | "device">): string {
  return `${row.resource} ${row.device}`;
}

export async function told(
  host: string,
  isOnly: boolean,
  stretch: readonly [number, number],
  signal: AbortSignal,
): Promise<Host> {
  const window = time.step(stretch[1] - stretch[0], WINDOWS);
  const [from, to] = time.aligned(...stretch, window);
  const ends = Array.from(
    { length: Math.round((to - from) / window) },
    (_, at) => from + (at + 1) * window,
  );
  const of = (metric: string) => selector(metric, host);
  const [names, disks, interfaces, atWorkOf, notes, answers, running] = await Promise.all([
    values("__name__", selector("", host, '__name=~"host_.*"'), signal),
    values(
      "device",
      selector("", host, '__name=~"host_(disk_busy_seconds_total|block_io)"'),
      signal,
    ),
    values("interface", of("host_network_bytes_total"), signal),
    atWork(host, [from, to], signal),
    // Who may not see the status does not see them.
    ask<{ host_notes?: string[] }>("/v1/status", {}, signal).then(
      (status) => status.host_notes ?? [],
      kept([]),
    ),
    Promise.all(
      questions(host, window).map((text) =>
        question(text, "promql", [ends[0] ?? to, to], window, signal).catch(refused),
      ),
    ),
    programs(host, [from, to], RECENT * window, signal).catch(refused),
  ]);
  const metrics = new Set(names);
  const why = (program: "block_io" | "run_queue") =>
    without(program, atWorkOf.get(program), isOnly ? notes : []);
  const base: Told = {
    host,
    metrics,
    disks,
    interfaces,
    answers,
    ends,
    window,
    withoutBlockIo: why("block_io"),
  };

  const wanted = new Map<string, Omit<Tile, "heatmap">[] | string>();
  wanted.set(
    "processors ",
    metrics.has("host_run_queue_delay")
      ? [
          {
            title: "waits for a processor",
            selector: of("host_run_queue_delay"),
            about: "how long tasks that could run did not",
          },
        ]
      : `Waits for a processor are not collected: ${why("run_queue")}`,
  );
  wanted.set(
    "machine ",
    metrics.has("host_hiccup")
      ? [
          {
            title: "hiccups",
            selector: of("host_hiccup"),
            about: "how late a thread wakes up that has nothing to do",
          },
        ]
      : "Hiccups are not collected: hiccup is off in the settings of that host",
  );
  if (disks.length === 0) wanted.set("disk ", `Block I/O is not collected: ${why("block_io")}`);
  const blockIo = metrics.has("host_block_io")
    ? await ask<{ series: Series[] }>(
        "/v1/series",
        { selector: of("host_block_io"), limit: 1_000 },
        signal,
      )
    : { series: [] };
  for (const disk of disks) {
    const operations = blockIo.series
      .filter((one) => one.labels["device"] === disk)
      .map((one) => one.labels["operation"] ?? "");
    const tile = (operation: string) => ({
      title: `${disk} ${operation}`,
      selector: selector(
        "host_block_io",
        host,
        `device=${quoted(disk)},operation=${quoted(operation)}`,
      ),
      about: "block I/O, from its request to its end",
    });
    const not = metrics.has("host_block_io")
      ? "its driver takes no requests of its own, or there were none yet"
      : why("block_io");
    wanted.set(
      `disk ${disk}`,
      operations.length > 0 ? operations.sort().map(tile) : `Block I/O is not collected: ${not}`,
    );
  }

  let room = TILES;
  const tiles = new Map<string, Tile[] | string>();
  const step = time.step(stretch[1] - stretch[0], COLUMNS);
  const drawn = async (one: Omit<Tile, "heatmap">) => ({
    ...one,
    heatmap: await heatmap(one.selector, time.aligned(...stretch, step), step, signal),
  });
  for (const [key, list] of wanted) {
    if (typeof list === "string") tiles.set(key, list);
    else {
      const some = list.slice(0, room);
      room -= some.length;
      tiles.set(
        key,
        some.length > 0
          ? await Promise.all(some.map(drawn))
          : "More than a page has room for: see Explore.",
      );
    }
  }
  return {
    ...base,
    span: stretch[1] - stretch[0],
    tiles,
    programs: running,
    notes: isOnly ? otherNotes(notes) : notes,
  };
}

/** Whether its programs in the kernel are at work, as the host said last in this time; null where it did not. */
async function atWork(
  host: string,
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<Map<string, boolean | null>> {
  const of = selector("host_bpf_available", host);
  const text = `max by (program) (last_over_time(${of}[${to - from}ms]))`;
  const [programs, answer] = await Promise.all([
    values("program", of, signal),
    question(text, "promql", [to, to], to - from, signal).catch(kept(null)),
  ]);
  const said = (program: string) => {
    const last = answer?.streams
      .find((stream) => stream.labels["program"] === program)
      ?.points.at(-1)?.value;
    return last && "estimate" in last ? last.estimate > 0 : null;
  };
  return new Map(programs.map((program) => [program, said(program)]));
}

async function values(label: string, selector: string, signal: AbortSignal): Promise<string[]> {
  const told = await ask<{ values: { value: string }[] }>(
    `/v1/label/${label}/values`,
    { selector, limit: 10_000 },
    signal,
  );
  return told.values.map((one) => one.value).sort();
}

/** What cannot be had does not stand in the way of the rest; but nobody waits for what was given up. */
function refused(error: unknown): Refused {
  if (error instanceof Refused) return error;
  throw error;
}

function kept<T>(instead: T): (error: unknown) => T {
  return (error) => {
    if (isAborted(error)) throw error;
    return instead;
  };
}
