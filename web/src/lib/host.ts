/** The report of one host in a range: stats of `resourceMetrics.ts`, and distributions. */

import { ApiError, fetchHeatmap, getJson, isAborted, type Heatmap, type Series } from "./api";
import { fetchPrograms, type ProgramReport } from "./programs";
import { runQuery } from "./query";
import {
  buildQueries,
  hostSelector,
  missingReason,
  unrelatedNotes,
  type BpfProgram,
  type HostData,
  type ResourceRow,
} from "./resourceMetrics";
import { quoted } from "./selector";
import { alignRange, columnStep } from "./time";

/** A small heatmap of a resource. */
export interface HeatmapTile {
  title: string;
  selector: string;
  about: string;
  heatmap: Heatmap;
}

export interface HostReport extends HostData {
  /** Length of the range, in milliseconds. */
  span: number;
  /** Tiles by `tileKey`, or the reason why there are none. */
  tiles: ReadonlyMap<string, HeatmapTile[] | string>;
  /** Programs that publish metrics in shared memory, or the error of their query. */
  programs: ProgramReport | ApiError;
  /** Collector warnings of the server's own host that no stat shows. */
  notes: readonly string[];
}

/** Windows of a stat, columns of a tile. */
const WINDOWS = 60;
const COLUMNS = 90;
/** Tiles on the page: the rest is in Explore. */
const MAX_TILES = 32;
/** Windows at the end that rates and latencies of programs cover. */
const RECENT_WINDOWS = 5;

/** Hosts with metrics. */
export async function fetchHosts(signal: AbortSignal): Promise<string[]> {
  return fetchLabelValues("host", '{__name=~"host_.*|process_up"}', signal);
}

export function tileKey({ resource, device }: Pick<ResourceRow, "resource" | "device">): string {
  return `${resource} ${device}`;
}

export async function fetchHost(
  host: string,
  isOnly: boolean,
  range: readonly [number, number],
  signal: AbortSignal,
): Promise<HostReport> {
  const span = range[1] - range[0];
  const window = columnStep(span, WINDOWS);
  const [from, to] = alignRange(...range, window);
  const windows = Math.round((to - from) / window);
  const ends = Array.from({ length: windows }, (_, index) => from + (index + 1) * window);
  const select = (metric: string) => hostSelector(metric, host);
  const evaluate = (text: string) =>
    runQuery(text, "promql", [from, to], window, signal).catch(toApiError);
  const allNames = hostSelector("", host, '__name=~"host_.*"');
  const allDisks = hostSelector(
    "",
    host,
    '__name=~"host_(disk_io_time_seconds_total|block_io_latency)"',
  );
  const [names, disks, interfaces, bpfPrograms, notes, results, programs] = await Promise.all([
    fetchLabelValues("__name__", allNames, signal),
    fetchLabelValues("device", allDisks, signal),
    fetchLabelValues("interface", select("host_network_bytes_total"), signal),
    fetchBpfPrograms(host, [from, to], signal),
    // A token without access to the status gets no notes.
    getJson<{ host_warnings?: string[] }>("/v1/status", {}, signal).then(
      (status) => status.host_warnings ?? [],
      orElse([]),
    ),
    Promise.all(buildQueries(host, window).map(evaluate)),
    fetchPrograms(host, [from, to], RECENT_WINDOWS * window, signal).catch(toApiError),
  ]);
  const metrics = new Set(names);
  const reason = (program: BpfProgram) =>
    missingReason(program, bpfPrograms.get(program), isOnly ? notes : []);
  const blockIoReason = reason("block_io");
  const data: HostData = {
    host,
    metrics,
    disks,
    interfaces,
    results,
    ends,
    window,
    blockIoReason,
  };

  type PlannedTile = Omit<HeatmapTile, "heatmap">;
  const planned = new Map<string, PlannedTile[] | string>();
  const plan = (key: string, metric: string, tile: Omit<PlannedTile, "selector">, why: string) =>
    planned.set(
      key,
      metrics.has(metric)
        ? [{ ...tile, selector: select(metric) }]
        : `${tile.title} not collected: ${why}`,
    );
  plan(
    "cpu ",
    "host_run_queue_latency",
    { title: "Run queue latency", about: "Time runnable tasks waited for a CPU" },
    reason("run_queue"),
  );
  plan(
    "machine ",
    "host_hiccup_delay",
    { title: "Hiccups", about: "Timer wake-up delay of an idle thread (jHiccup)" },
    "hiccup is disabled in that host's [host] settings",
  );
  if (disks.length === 0) planned.set("disk ", `Block I/O not collected: ${blockIoReason}`);
  const hasBlockIo = metrics.has("host_block_io_latency");
  const blockIo = hasBlockIo
    ? await getJson<{ series: Series[] }>(
        "/v1/series",
        { selector: select("host_block_io_latency"), limit: 1_000 },
        signal,
      )
    : { series: [] };
  for (const disk of disks) {
    const operations = blockIo.series
      .filter((one) => one.labels["device"] === disk)
      .map((one) => one.labels["operation"] ?? "");
    const tile = (operation: string) => {
      const labels = `device=${quoted(disk)},operation=${quoted(operation)}`;
      return {
        title: `${disk} ${operation}`,
        selector: hostSelector("host_block_io_latency", host, labels),
        about: "Block I/O latency, queue to completion",
      };
    };
    const why = hasBlockIo ? "driver bypasses the block layer queue, or no I/O yet" : blockIoReason;
    planned.set(
      `disk ${disk}`,
      operations.length > 0 ? operations.sort().map(tile) : `Block I/O not collected: ${why}`,
    );
  }

  let remaining = MAX_TILES;
  const tiles = new Map<string, HeatmapTile[] | string>();
  const step = columnStep(span, COLUMNS);
  const load = async (tile: PlannedTile) => {
    const heatmap = await fetchHeatmap(tile.selector, alignRange(...range, step), step, signal);
    return { ...tile, heatmap };
  };
  for (const [key, list] of planned) {
    if (typeof list === "string") tiles.set(key, list);
    else {
      const some = list.slice(0, remaining);
      remaining -= some.length;
      const isNone = some.length === 0;
      tiles.set(
        key,
        isNone
          ? `Limit of ${MAX_TILES} heatmaps on this page reached; see Explore.`
          : await Promise.all(some.map(load)),
      );
    }
  }
  return { ...data, span, tiles, programs, notes: isOnly ? unrelatedNotes(notes) : notes };
}

/** Whether BPF programs are loaded, by the last sample in the range; null without samples. */
async function fetchBpfPrograms(
  host: string,
  [from, to]: readonly [number, number],
  signal: AbortSignal,
): Promise<Map<string, boolean | null>> {
  const selector = hostSelector("host_bpf_available", host);
  const text = `max by (program) (last_over_time(${selector}[${to - from}ms]))`;
  const [programs, result] = await Promise.all([
    fetchLabelValues("program", selector, signal),
    runQuery(text, "promql", [from, to], to - from, signal).catch(orElse(null)),
  ]);
  const isLoaded = (program: string) => {
    const series = result?.series.find((one) => one.labels["program"] === program);
    const last = series?.points.at(-1)?.value;
    return last && "estimate" in last ? last.estimate > 0 : null;
  };
  return new Map(programs.map((program) => [program, isLoaded(program)]));
}

async function fetchLabelValues(
  label: string,
  selector: string,
  signal: AbortSignal,
): Promise<string[]> {
  interface LabelValuesJson {
    values: { value: string }[];
  }
  const path = `/v1/label/${label}/values`;
  const { values } = await getJson<LabelValuesJson>(path, { selector, limit: 10_000 }, signal);
  return values.map((one) => one.value).sort();
}

/** One failed query does not hide the others; an aborted one ends all. */
function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  throw error;
}

function orElse<T>(otherwise: T): (error: unknown) => T {
  return (error) => {
    if (isAborted(error)) throw error;
    return otherwise;
  };
}
