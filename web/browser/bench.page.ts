/** Cost of a live heatmap of 1,000 × 300 cells, a new column each frame, and of an empty page. */

import "uplot/dist/uPlot.min.css";
import "../src/app.css";

import type { HeatmapColumn, Heatmap } from "../src/lib/api";
import { Distribution } from "../src/lib/distribution";
import { diffColumns, advanceHeatmap } from "../src/lib/live";
import { HeatmapPlot } from "../src/lib/heatmapPlot";
import { random } from "./traffic";

const COLUMNS = 1_000;
/** Non-empty buckets of a column: 216,000 cells, as in the recordings behind the target. */
const CELLS = 216;

export interface Measured {
  frames: number;
  seconds: number;
  /** Script time of each update, in milliseconds. */
  updates: number[];
  /** Bytes of the heap before and after, if the browser reports them. */
  heap: [number, number];
}

declare global {
  interface Window {
    empty(seconds: number): Promise<Measured>;
    live(seconds: number, lines: readonly string[]): Promise<Measured>;
    gc?: () => void;
  }
}

const next = random(3);

function column(at: number): HeatmapColumn {
  const cells = Array.from({ length: CELLS }, (_, cell) => {
    const lower = 1e3 * 1.05 ** cell;
    return { lower, upper: lower * 1.05, count: 1 + Math.floor(1e4 * next() ** 8) };
  });
  return { start: at * 1e3, end: at * 1e3 + 1e3, distribution: new Distribution(cells), gaps: [] };
}

const heap = () => {
  window.gc?.();
  return (
    (performance as unknown as { memory?: { usedJSHeapSize: number } }).memory?.usedJSHeapSize ?? 0
  );
};

async function frames(seconds: number, each: () => void): Promise<Measured> {
  const before = heap();
  const updates: number[] = [];
  const start = performance.now();
  let count = 0;
  await new Promise<void>((done) => {
    const frame = () => {
      const began = performance.now();
      each();
      updates.push(performance.now() - began);
      count++;
      if (performance.now() - start < seconds * 1e3) requestAnimationFrame(frame);
      else done();
    };
    requestAnimationFrame(frame);
  });
  return {
    frames: count,
    seconds: (performance.now() - start) / 1e3,
    updates,
    heap: [before, heap()],
  };
}

window.empty = (seconds) => frames(seconds, () => undefined);

window.live = async (seconds, lines) => {
  const host = document.getElementById("host")!;
  const ready = Array.from({ length: 2 * COLUMNS }, (_, at) => column(at));
  let current: Heatmap = {
    selector: "bench",
    series: 1,
    unit: "ns",
    start: 0,
    leftOut: null,
    end: COLUMNS * 1e3,
    step: 1e3,
    total: Distribution.merged(ready.slice(0, 10).map((one) => one.distribution)),
    columns: ready.slice(0, COLUMNS),
  };
  const nothing = () => undefined;
  const plot = new HeatmapPlot(
    host,
    { hover: nothing, zoom: nothing, threshold: nothing, cancelled: nothing, select: nothing },
    600,
  );
  plot.show(current, lines, { measure: "count", colourScale: "log", isDark: false });
  let at = COLUMNS;
  const measured = await frames(seconds, () => {
    // Columns come round again with a later time.
    const one = ready[at % ready.length]!;
    const fresh: HeatmapColumn = { ...one, start: at * 1e3, end: at * 1e3 + 1e3 };
    at++;
    const following = advanceHeatmap(current, [fresh], current.total);
    const change = diffColumns(current, following)!;
    plot.follow(following, change.replaced, change.appended);
    current = following;
  });
  plot.destroy();
  return measured;
};
document.body.dataset["ready"] = "yes";
