/** The difference of two heatmaps: for each cell, its share of the column in B less that in A. */

import type { Heatmap } from "./api";
import { csvRows, type ChartDrawing, type DrawnCell } from "./chartDrawing";
import type { Rgb } from "./colour";
import { binRows } from "./raster";
import type { Scale } from "./scale";
import * as time from "./time";
import { formatShare, formatValue } from "./unit";

export interface HeatmapDifference {
  columns: number;
  rows: number;
  /** Column by column, bottom row first: −1 (A only) to 1 (B only); NaN if one column is empty. */
  values: Float32Array;
  /** The largest absolute value. */
  max: number;
}

export function subtractHeatmaps(
  a: Heatmap,
  b: Heatmap,
  scale: Scale,
  rows: number,
): HeatmapDifference {
  const columns = Math.min(a.columns.length, b.columns.length);
  const values = new Float32Array(columns * rows);
  const [rowsA, rowsB] = [new Float64Array(rows), new Float64Array(rows)];
  let max = 0;
  for (let column = 0; column < columns; column++) {
    const [ofA, ofB] = [a.columns[column]!.distribution, b.columns[column]!.distribution];
    const slice = values.subarray(column * rows, (column + 1) * rows);
    if (ofA.isEmpty || ofB.isEmpty) {
      slice.fill(NaN);
      continue;
    }
    binRows(ofA, scale, rowsA);
    binRows(ofB, scale, rowsB);
    for (let row = 0; row < rows; row++) {
      const value = rowsB[row]! / ofB.count - rowsA[row]! / ofA.count;
      slice[row] = value;
      max = Math.max(max, Math.abs(value));
    }
  }
  return { columns, rows, values, max };
}

/** A cell of the difference, and the share that it is of its column on each side. */
export interface DifferenceCell {
  start: number;
  end: number;
  lower: number;
  upper: number;
  /** Null if the side has no value in the column. */
  a: number | null;
  b: number | null;
}

/** The cell of a column and a row, counted from the bottom. */
export function differenceCell(
  a: Heatmap,
  b: Heatmap,
  scale: Scale,
  rows: number,
  [column, row]: readonly [number, number],
): DifferenceCell {
  const shareOf = (of: Heatmap): number | null => {
    const distribution = of.columns[column]?.distribution;
    if (!distribution || distribution.isEmpty) return null;
    const bins = new Float64Array(rows);
    binRows(distribution, scale, bins);
    return bins[row]! / distribution.count;
  };
  const [start, end] = columnTimes(a, column);
  const [lower, upper] = [scale.value(row / rows), scale.value((row + 1) / rows)];
  return { start, end, lower, upper, a: shareOf(a), b: shareOf(b) };
}

/** `A 12 %, B 3.1 %: 8.9 % more in A`. */
export function describeDifference({ a, b }: DifferenceCell): string {
  const side = (share: number | null) => (share === null ? "no data" : formatShare(share));
  const sides = `A ${side(a)}, B ${side(b)}`;
  if (a === null || b === null) return sides;
  if (a === b) return `${sides}: no difference`;
  return `${sides}: ${formatShare(Math.abs(a - b))} more in ${a > b ? "A" : "B"}`;
}

/** Blue for A, orange for B: distinguishable with any colour vision. */
const SIDES: Record<"light" | "dark", { a: Rgb; b: Rgb }> = {
  light: { a: [12, 72, 150], b: [176, 76, 0] },
  dark: { a: [110, 180, 255], b: [255, 170, 80] },
};

/** Pixels, top row first. Cells without a difference are transparent. */
export function differencePixels(
  { columns, rows, values, max }: HeatmapDifference,
  isDark: boolean,
): ImageData {
  const image = new ImageData(Math.max(columns, 1), rows);
  const { a, b } = SIDES[isDark ? "dark" : "light"];
  for (let column = 0; column < columns; column++) {
    for (let row = 0; row < rows; row++) {
      const value = values[column * rows + row]!;
      if (!(Math.abs(value) > 0)) continue;
      const at = 4 * ((rows - 1 - row) * columns + column);
      image.data.set(value > 0 ? b : a, at);
      // The square root makes small differences visible.
      image.data[at + 3] = Math.round(255 * Math.sqrt(Math.abs(value) / max));
    }
  }
  return image;
}

/** Start and end of a column, in milliseconds. */
function columnTimes(of: Heatmap, column: number): readonly [number, number] {
  const start = of.start + column * of.step;
  return [start, start + of.step];
}

/** The difference as a file. */
export function differenceDrawing(
  { columns, rows, values, max }: HeatmapDifference,
  of: Heatmap,
  scale: Scale,
  title: string,
  isDark: boolean,
  colour: ChartDrawing["colour"],
): ChartDrawing {
  const { a, b } = SIDES[isDark ? "dark" : "light"];
  const cells: DrawnCell[] = [];
  for (let column = 0; column < columns; column++) {
    for (let row = 0; row < rows; row++) {
      const value = values[column * rows + row]!;
      if (!(Math.abs(value) > 0)) continue;
      const strength = Math.sqrt(Math.abs(value) / max).toFixed(2);
      cells.push({
        x: columnTimes(of, column),
        y: [row / rows, (row + 1) / rows],
        colour: `rgb(${(value > 0 ? b : a).join(" ")} / ${strength})`,
      });
    }
  }
  const end = of.start + columns * of.step;
  return {
    title: `${title}: blue A, orange B`,
    cells,
    lines: [],
    positions: [],
    x: [of.start, end],
    y: [0, 1],
    xTicks: time.labelledTicks(of.start, end, 9),
    yTicks: scale.ticks(12).map((at) => ({ at: scale.share(at), text: formatValue(at, of.unit) })),
    threshold: null,
    colour,
  };
}

/** A row per cell with a difference: its share of the column in B less that in A. */
export function differenceCsv(
  { columns, rows, values }: HeatmapDifference,
  of: Heatmap,
  scale: Scale,
): string {
  const named = (name: string) => (of.unit === "" ? name : `${name} (${of.unit})`);
  const lines = [["start", "end", named("lower"), named("upper"), "share in B less that in A"]];
  for (let column = 0; column < columns; column++) {
    for (let row = 0; row < rows; row++) {
      const value = values[column * rows + row]!;
      if (!(Math.abs(value) > 0)) continue;
      lines.push([
        ...columnTimes(of, column).map((ms) => new Date(ms).toISOString()),
        ...[row, row + 1].map((edge) => String(Number(scale.value(edge / rows).toPrecision(6)))),
        String(Number(value.toPrecision(6))),
      ]);
    }
  }
  return csvRows(lines);
}
