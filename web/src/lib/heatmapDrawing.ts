/** A heatmap as a file: cells, lines and threshold as a drawing, and its cells as CSV. */

import type { Heatmap } from "./api";
import { csvRows, type ChartDrawing, type DrawnCell } from "./chartDrawing";
import { colourSteps, ramp, STEPS } from "./colour";
import { drawnBounds } from "./distribution";
import { overlayLines } from "./overlay";
import { binRows, type HeatmapStyle } from "./raster";
import { Scale } from "./scale";
import * as time from "./time";
import { formatValue } from "./unit";

/** Rows of a drawing: an SVG of more would be slow, and a cell of a screen is no smaller. */
const ROWS = 100;

/** Counts or shares by column and row, the lowest row first. */
function measure({ columns }: Heatmap, scale: Scale, style: HeatmapStyle): Float64Array[] {
  return columns.map(({ distribution }) => {
    const rows = new Float64Array(ROWS);
    binRows(distribution, scale, rows);
    const divisor = style.measure === "share" ? distribution.count || 1 : 1;
    return rows.map((count) => count / divisor);
  });
}

/** Colours of the cells, which are those of the screen. Equal cells above each other are one. */
function drawCells(heatmap: Heatmap, scale: Scale, style: HeatmapStyle): DrawnCell[] {
  const measures = measure(heatmap, scale, style);
  const filled = () =>
    Float64Array.from(measures.flatMap((rows) => [...rows].filter((n) => n > 0)));
  const all = filled();
  const most = all.reduce((a, b) => Math.max(a, b), 0);
  const isWhole = style.measure === "count" && heatmap.total.isWhole;
  const smallest = all.reduce((a, b) => Math.min(a, b), Infinity);
  const least = Math.max(smallest, isWhole ? Math.min(1, most) : most / 1e4);
  const steps = colourSteps(style.colourScale, least, most, filled);
  const bytes = new Uint8ClampedArray(ramp(style.isDark).buffer);
  const colourOf = (step: number) => `rgb(${bytes.subarray(4 * step, 4 * step + 3).join(" ")})`;
  return measures.flatMap((rows, column) => {
    const { start, end } = heatmap.columns[column]!;
    const cells: { first: number; last: number; step: number }[] = [];
    rows.forEach((measure, row) => {
      if (measure <= 0) return;
      const step = Math.min(steps.toStep(measure), STEPS - 1);
      const below = cells[cells.length - 1];
      if (below?.last === row - 1 && below.step === step) below.last = row;
      else cells.push({ first: row, last: row, step });
    });
    return cells.map(({ first, last, step }) => ({
      x: [start, end] as const,
      y: [first / ROWS, (last + 1) / ROWS] as const,
      colour: colourOf(step),
    }));
  });
}

/** The vertical axis is that of the screen, from 0 to 1. */
export function heatmapDrawing(
  heatmap: Heatmap,
  style: HeatmapStyle,
  overlays: readonly string[],
  threshold: number | null,
  colour: ChartDrawing["colour"],
): ChartDrawing {
  const { columns, start, end, unit } = heatmap;
  const scale = Scale.around(heatmap.total.cells.map(drawnBounds));
  const share = (value: number | undefined) =>
    value === undefined || !Number.isFinite(value) ? null : scale.share(value);
  return {
    title: heatmap.selector,
    cells: drawCells(heatmap, scale, style),
    lines: overlayLines(overlays).map(({ name, colour, width, of }) => ({
      name,
      colour,
      width,
      points: columns.map((column) => share(of(column))),
    })),
    positions: columns.map((column) => (column.start + column.end) / 2),
    x: [start, end],
    y: [0, 1],
    xTicks: time.labelledTicks(start, end, 9),
    yTicks: scale.ticks(12).map((at) => ({ at: scale.share(at), text: formatValue(at, unit) })),
    threshold:
      threshold === null
        ? null
        : { at: scale.share(threshold), text: formatValue(threshold, unit) },
    colour,
  };
}

/** A row per cell; an unknown bound is empty. */
export function heatmapCsv({ columns, unit }: Heatmap): string {
  const bound = (value: number) => (Number.isFinite(value) ? String(value) : "");
  const named = (name: string) => (unit === "" ? name : `${name} (${unit})`);
  const iso = (ms: number) => new Date(ms).toISOString();
  return csvRows([
    ["start", "end", named("lower"), named("upper"), "count"],
    ...columns.flatMap(({ start, end, distribution }) =>
      distribution.cells.map((cell) => [
        iso(start),
        iso(end),
        bound(cell.lower),
        bound(cell.upper),
        String(cell.count),
      ]),
    ),
  ]);
}
