/** Two heatmaps held against each other: in each cell, how much larger its share of the column is in B than in A. */

import type { Heatmap } from "./api";
import { rowsOf } from "./raster";
import type { Scale } from "./scale";

export interface Contrast {
  columns: number;
  rows: number;
  /** Column after column, bottom row first: from −1 (all of A, nothing of B) to 1. NaN where a side has nothing. */
  values: Float32Array;
  /** The greatest distance from zero. */
  most: number;
}

export function contrast(a: Heatmap, b: Heatmap, scale: Scale, rows: number): Contrast {
  const columns = Math.min(a.columns.length, b.columns.length);
  const values = new Float32Array(columns * rows);
  const [rowsA, rowsB] = [new Float64Array(rows), new Float64Array(rows)];
  let most = 0;
  for (let column = 0; column < columns; column++) {
    const [ofA, ofB] = [a.columns[column]!.distribution, b.columns[column]!.distribution];
    const place = values.subarray(column * rows, (column + 1) * rows);
    if (ofA.isEmpty || ofB.isEmpty) {
      place.fill(NaN);
      continue;
    }
    rowsOf(ofA, scale, rowsA);
    rowsOf(ofB, scale, rowsB);
    for (let row = 0; row < rows; row++) {
      const value = rowsB[row]! / ofB.count - rowsA[row]! / ofA.count;
      place[row] = value;
      most = Math.max(most, Math.abs(value));
    }
  }
  return { columns, rows, values, most };
}

type Rgb = readonly [number, number, number];

/** Blue for A, orange for B: told apart by everybody, and by their lightness from the middle. */
const SIDES: Record<"light" | "dark", { a: Rgb; b: Rgb }> = {
  light: { a: [12, 72, 150], b: [176, 76, 0] },
  dark: { a: [110, 180, 255], b: [255, 170, 80] },
};

/** As pixels, the top row first. What is equal, or not there, is transparent. */
export function pixels({ columns, rows, values, most }: Contrast, isDark: boolean): ImageData {
  const image = new ImageData(Math.max(columns, 1), rows);
  const { a, b } = SIDES[isDark ? "dark" : "light"];
  for (let column = 0; column < columns; column++) {
    for (let row = 0; row < rows; row++) {
      const value = values[column * rows + row]!;
      if (!(Math.abs(value) > 0)) continue;
      const side = value > 0 ? b : a;
      const at = 4 * ((rows - 1 - row) * columns + column);
      image.data.set(side, at);
      // The root lifts what is small.
      image.data[at + 3] = Math.round(255 * Math.sqrt(Math.abs(value) / most));
    }
  }
  return image;
}
