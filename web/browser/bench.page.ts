/** What the picture costs: 1,000 columns of 300 rows, a new column each frame, beside a page that does nothing. */

import "uplot/dist/uPlot.min.css";
import "../src/app.css";

import type { Column, Heatmap } from "../src/lib/api";
import { Distribution } from "../src/lib/distribution";
import { difference, moved } from "../src/lib/live";
import { Plot } from "../src/lib/plot";
import { random } from "./traffic";

const COLUMNS = 1_000;
/** Buckets of a column that are not empty, as in the recordings that the target was set with: 216,000 cells in all. */
const CELLS = 216;

export interface Measured {
  frames: number;
  seconds: number;
  /** Script of each update, in milliseconds. */
  updates: number[];
  /** Bytes of the heap before and after, if the browser tells. */
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

function column(at: number): Column {
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
  let held: Heatmap = {
    selector: "bench",
    series: 1,
    unit: "ns",
    start: 0,
    end: COLUMNS * 1e3,
    step: 1e3,
    total: Distribution.merged(ready.slice(0, 10).map((one) => one.distribution)),
    columns: ready.slice(0, COLUMNS),
  };
  const nothing = () => undefined;
  const plot = new Plot(
    host,
    { hover: nothing, zoom: nothing, threshold: nothing, cancelled: nothing, select: nothing },
    600,
  );
  plot.show(held, lines, { measure: "count", colouring: "log", isDark: false });
  let at = COLUMNS;
  const measured = await frames(seconds, () => {
    // Columns come round again with a later time.
    const one = ready[at % ready.length]!;
    const fresh: Column = { ...one, start: at * 1e3, end: at * 1e3 + 1e3 };
    at++;
    const then = moved(held, [fresh], held.total);
    const change = difference(held, then)!;
    plot.follow(then, change.replaced, change.pushed);
    held = then;
  });
  plot.destroy();
  return measured;
};
document.body.dataset["ready"] = "yes";
