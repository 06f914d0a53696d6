/**
 * The picture of a heatmap: a ring of columns of counts, and the same as pixels. A new column costs one column of pixels; drawing
 * is two copies of an image. Counts are kept, so that colours change without asking the server again.
 */

import { ramp, steps, STEPS, type Colouring, type Steps } from "./colour";
import { finite, type Distribution } from "./distribution";
import type { Scale } from "./scale";

/** What decides a colour: how many there are, or which share of their column. */
export type Measure = "count" | "share";

export interface Look {
  measure: Measure;
  colouring: Colouring;
  isDark: boolean;
}

/** Rows of a picture. */
export const ROWS = 300;

/** Puts a distribution into rows, bottom first. A cell across several rows is shared out by their part in it: nothing is lost. */
export function rowsOf(distribution: Distribution, scale: Scale, rows: Float64Array): void {
  rows.fill(0);
  const last = rows.length - 1;
  for (const cell of distribution.cells) {
    const [lower, upper] = finite(cell);
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
  /** Column after column, in the order of the ring. Doubles: with 32 bits a cell of 17 million would not know the ones. */
  readonly counts: Float64Array;
  private readonly totals: Float64Array;
  private readonly canvas: OffscreenCanvas;
  private readonly context: OffscreenCanvasRenderingContext2D;
  private readonly column: ImageData;
  private readonly pixels: Uint32Array;
  private colours: Uint32Array = ramp(false);
  private look: Look = { measure: "count", colouring: "log", isDark: false };
  private steps: Steps = steps("log", 1, 1, () => new Float64Array());
  private most = 0;
  private least = Infinity;
  /** Place in the ring of the column at the left. */
  private first = 0;

  constructor(
    readonly columns: number,
    readonly rows: number,
  ) {
    this.counts = new Float64Array(columns * rows);
    this.totals = new Float64Array(columns);
    this.canvas = new OffscreenCanvas(columns, rows);
    const context = this.canvas.getContext("2d");
    if (!context) throw new Error("this browser gives no 2D canvas");
    this.context = context;
    this.column = context.createImageData(1, rows);
    this.pixels = new Uint32Array(this.column.data.buffer);
  }

  /** What all cells of the picture say together. By columns, so that what is rounded stays far below one. */
  get drawn(): number {
    let sum = 0;
    for (let place = 0; place < this.columns; place++) {
      let column = 0;
      for (let at = place * this.rows; at < (place + 1) * this.rows; at++)
        column += this.counts[at]!;
      sum += column;
    }
    return sum;
  }

  /** The count of a cell: column from the left, row from the bottom. */
  count(column: number, row: number): number {
    return this.counts[this.place(column) * this.rows + row] ?? 0;
  }

  /** The key of the colours. */
  get key(): { steps: Steps; colours: Uint32Array; least: number; most: number } {
    const { steps, colours, least, most } = this;
    return { steps, colours, least: least === Infinity ? 0 : least, most };
  }

  /** Sets a column, from the left. `recolour` must follow when all are set. */
  set(column: number, distribution: Distribution, scale: Scale): void {
    const place = this.place(column);
    rowsOf(distribution, scale, this.counts.subarray(place * this.rows, (place + 1) * this.rows));
    this.totals[place] = distribution.count;
  }

  /** The leftmost column goes, this one comes at the right. */
  push(distribution: Distribution, scale: Scale): void {
    this.first = (this.first + 1) % this.columns;
    this.replace(this.columns - 1, distribution, scale);
  }

  /** A column is another one. It alone is drawn, unless the colours no longer fit. */
  replace(column: number, distribution: Distribution, scale: Scale): void {
    const place = this.place(column);
    const counts = this.counts.subarray(place * this.rows, (place + 1) * this.rows);
    rowsOf(distribution, scale, counts);
    this.totals[place] = distribution.count;
    const most = this.most;
    this.measureColumn(place);
    if (this.most > most) this.recolour(this.look);
    else this.paint(place);
  }

  /** Gives all cells their colours. */
  recolour(look: Look): void {
    if (look.isDark !== this.look.isDark) this.colours = ramp(look.isDark);
    this.look = look;
    [this.most, this.least] = [0, Infinity];
    for (let place = 0; place < this.columns; place++) this.measureColumn(place);
    // A part of one value, or of the rarest, is as light as it gets: the ramp is for whole ones.
    this.least = Math.max(
      this.least,
      look.measure === "count" ? Math.min(1, this.most) : this.most / 1e4,
    );
    this.steps = steps(look.colouring, this.least, this.most, () => this.measures());
    for (let place = 0; place < this.columns; place++) this.paint(place);
  }

  /** Draws everything into a rectangle. */
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

  private place(column: number): number {
    return (this.first + column) % this.columns;
  }

  private divisor(place: number): number {
    return this.look.measure === "share" ? this.totals[place] || 1 : 1;
  }

  private measureColumn(place: number): void {
    const divisor = this.divisor(place);
    for (let at = place * this.rows; at < (place + 1) * this.rows; at++) {
      const measure = this.counts[at]! / divisor;
      if (measure > this.most) this.most = measure;
      if (measure > 0 && measure < this.least) this.least = measure;
    }
  }

  private measures(): Float64Array {
    const measures: number[] = [];
    for (let place = 0; place < this.columns; place++) {
      const divisor = this.divisor(place);
      for (let at = place * this.rows; at < (place + 1) * this.rows; at++) {
        if (this.counts[at]! > 0) measures.push(this.counts[at]! / divisor);
      }
    }
    return Float64Array.from(measures);
  }

  private paint(place: number): void {
    const { rows, pixels, counts, colours } = this;
    const divisor = this.divisor(place);
    for (let row = 0; row < rows; row++) {
      const count = counts[place * rows + row]!;
      // Rows of an image go down.
      pixels[rows - 1 - row] =
        count > 0 ? colours[Math.min(this.steps.of(count / divisor), STEPS - 1)]! : 0;
    }
    this.context.putImageData(this.column, place, 0);
  }
}
