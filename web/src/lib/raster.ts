/**
 * A heatmap as pixels: a ring buffer of columns of counts, and an image of the same layout. A new
 * column costs one column of pixels; drawing is two image copies. Counts are retained, so that
 * colours change without a request.
 */

import { colourSteps, ramp, STEPS, type ColourScale, type ColourSteps } from "./colour";
import { drawnBounds, type Distribution } from "./distribution";
import type { Scale } from "./scale";

/** What a colour encodes: the count, or its share of the column. */
export type CellMeasure = "count" | "share";

export interface HeatmapStyle {
  measure: CellMeasure;
  colourScale: ColourScale;
  isDark: boolean;
}

/** Rows of a heatmap. */
export const ROWS = 300;

/** Bins a distribution into rows, bottom first. A cell is split over its rows: the sum is exact. */
export function binRows(distribution: Distribution, scale: Scale, rows: Float64Array): void {
  rows.fill(0);
  const last = rows.length - 1;
  for (const cell of distribution.cells) {
    const [lower, upper] = drawnBounds(cell);
    const from = Math.min(Math.max(scale.share(lower) * rows.length, 0), rows.length);
    const to = Math.min(Math.max(scale.share(upper) * rows.length, 0), rows.length);
    const first = Math.min(Math.floor(from), last);
    const end = Math.min(Math.floor(to), last);
    if (end <= first || to - from <= 0) {
      rows[first]! += cell.count;
      continue;
    }
    const perRow = cell.count / (to - from);
    for (let row = first; row <= end; row++) {
      rows[row]! += perRow * (Math.min(to, row + 1) - Math.max(from, row));
    }
  }
}

export class Raster {
  /** Column by column, in ring order. Doubles: a 32-bit float cannot count beyond 2^24. */
  readonly counts: Float64Array;
  private readonly totals: Float64Array;
  private readonly canvas: OffscreenCanvas;
  private readonly context: OffscreenCanvasRenderingContext2D;
  private readonly column: ImageData;
  private readonly pixels: Uint32Array;
  private colours: Uint32Array = ramp(false);
  private style: HeatmapStyle = { measure: "count", colourScale: "log", isDark: false };
  private steps: ColourSteps = colourSteps("log", 1, 1, () => new Float64Array());
  private most = 0;
  private least = Infinity;
  private hasFractions = false;
  /** Ring index of the leftmost column. */
  private first = 0;

  constructor(
    readonly columns: number,
    readonly rows: number,
  ) {
    this.counts = new Float64Array(columns * rows);
    this.totals = new Float64Array(columns);
    this.canvas = new OffscreenCanvas(columns, rows);
    const context = this.canvas.getContext("2d");
    if (!context) throw new Error("cannot draw heatmap: the browser has no 2D canvas");
    this.context = context;
    this.column = context.createImageData(1, rows);
    this.pixels = new Uint32Array(this.column.data.buffer);
  }

  /** The sum of all cells; by columns, so that the rounding error stays far below 1. */
  get drawn(): number {
    let sum = 0;
    for (let slot = 0; slot < this.columns; slot++) {
      let column = 0;
      for (let at = slot * this.rows; at < (slot + 1) * this.rows; at++) column += this.counts[at]!;
      sum += column;
    }
    return sum;
  }

  /** The count of a cell: column from the left, row from the bottom. */
  count(column: number, row: number): number {
    return this.counts[this.ringIndex(column) * this.rows + row] ?? 0;
  }

  /** Legend of the colours. */
  get legend(): { steps: ColourSteps; colours: Uint32Array; least: number; most: number } {
    const { steps, colours, least, most } = this;
    return { steps, colours, least: least === Infinity ? 0 : least, most };
  }

  /** Sets a column; the leftmost is 0. `recolour` must follow. */
  set(column: number, distribution: Distribution, scale: Scale): void {
    const slot = this.ringIndex(column);
    binRows(distribution, scale, this.counts.subarray(slot * this.rows, (slot + 1) * this.rows));
    this.totals[slot] = distribution.count;
    this.hasFractions ||= !distribution.isWhole;
  }

  /** Drops the leftmost column and appends one at the right. */
  push(distribution: Distribution, scale: Scale): void {
    this.first = (this.first + 1) % this.columns;
    this.replace(this.columns - 1, distribution, scale);
  }

  /** Replaces a column. Only it is redrawn, unless the colour range changes. */
  replace(column: number, distribution: Distribution, scale: Scale): void {
    const slot = this.ringIndex(column);
    const counts = this.counts.subarray(slot * this.rows, (slot + 1) * this.rows);
    binRows(distribution, scale, counts);
    this.totals[slot] = distribution.count;
    this.hasFractions ||= !distribution.isWhole;
    const most = this.most;
    this.measureColumn(slot);
    if (this.most > most) this.recolour(this.style);
    else this.paint(slot);
  }

  /** Colours all cells. */
  recolour(style: HeatmapStyle): void {
    if (style.isDark !== this.style.isDark) this.colours = ramp(style.isDark);
    this.style = style;
    [this.most, this.least] = [0, Infinity];
    for (let slot = 0; slot < this.columns; slot++) this.measureColumn(slot);
    // The ramp begins at one whole value, or at 1/10,000 of the largest share or fraction.
    const isWhole = style.measure === "count" && !this.hasFractions;
    this.least = Math.max(this.least, isWhole ? Math.min(1, this.most) : this.most / 1e4);
    this.steps = colourSteps(style.colourScale, this.least, this.most, () => this.measures());
    for (let slot = 0; slot < this.columns; slot++) this.paint(slot);
  }

  /** Draws into a rectangle. */
  draw(to: CanvasRenderingContext2D, x: number, y: number, width: number, height: number): void {
    to.imageSmoothingEnabled = false;
    const perColumn = width / this.columns;
    const older = this.columns - this.first;
    to.drawImage(this.canvas, this.first, 0, older, this.rows, x, y, older * perColumn, height);
    if (this.first > 0) {
      const right = x + older * perColumn;
      to.drawImage(
        this.canvas,
        0,
        0,
        this.first,
        this.rows,
        right,
        y,
        this.first * perColumn,
        height,
      );
    }
  }

  private ringIndex(column: number): number {
    return (this.first + column) % this.columns;
  }

  private divisor(slot: number): number {
    return this.style.measure === "share" ? this.totals[slot] || 1 : 1;
  }

  private measureColumn(slot: number): void {
    const divisor = this.divisor(slot);
    for (let at = slot * this.rows; at < (slot + 1) * this.rows; at++) {
      const measure = this.counts[at]! / divisor;
      if (measure > this.most) this.most = measure;
      if (measure > 0 && measure < this.least) this.least = measure;
    }
  }

  private measures(): Float64Array {
    const measures: number[] = [];
    for (let slot = 0; slot < this.columns; slot++) {
      const divisor = this.divisor(slot);
      for (let at = slot * this.rows; at < (slot + 1) * this.rows; at++) {
        if (this.counts[at]! > 0) measures.push(this.counts[at]! / divisor);
      }
    }
    return Float64Array.from(measures);
  }

  private paint(slot: number): void {
    const { rows, pixels, counts, colours } = this;
    const divisor = this.divisor(slot);
    for (let row = 0; row < rows; row++) {
      const count = counts[slot * rows + row]!;
      // Image rows are top-down.
      pixels[rows - 1 - row] =
        count > 0 ? colours[Math.min(this.steps.toStep(count / divisor), STEPS - 1)]! : 0;
    }
    this.context.putImageData(this.column, slot, 0);
  }
}
