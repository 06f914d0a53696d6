/**
 * Lines over a heatmap, one value for each column. They are drawn as steps: a greatest value or a quantile is of its whole column,
 * and nothing is known of a slope in between. Steps are upright rectangles, which a live picture can afford; slanted strokes of the
 * same lines cost ten times as much where no graphics card helps.
 */

import type { Column } from "./api";
import type { Scale } from "./scale";

/** Quantiles that can be drawn as lines. */
export const QUANTILES = [0.5, 0.9, 0.99, 0.999] as const;

interface Line {
  name: string;
  /** A colour of app.css. */
  colour: string;
  /** In pixels of the page. */
  width: number;
  of: (column: Column) => number | undefined;
}

const LINES: readonly Line[] = [
  {
    name: "max",
    colour: "--line-max",
    width: 1,
    of: (column) => column.distribution.max?.estimate,
  },
  {
    name: "mean",
    colour: "--line-mean",
    width: 2,
    of: (column) => column.distribution.mean?.estimate,
  },
  ...QUANTILES.map((q, at) => ({
    name: quantileName(q),
    colour: `--line-${at + 1}`,
    width: 2,
    of: (column: Column) => column.distribution.quantile(q)?.estimate,
  })),
];
/** The greatest value is always drawn: no quantile tells of it. */
const ALWAYS = "max";
/** Lines that can be had beside it. */
export const LINE_NAMES = LINES.map((line) => line.name).filter((name) => name !== ALWAYS);

/** Pixels of the page at the right of a picture, where the names of lines stand. */
export const MARGIN = 46;
/** Pixels of the page from one name to the next. */
const LEADING = 13;
/** Beyond every picture. */
const NOWHERE = -1;

export class Overlay {
  /** Heights of all lines in a column, as shares of the scale: most columns stay from one picture to the next. */
  private known = new WeakMap<Column, Float64Array>();
  private lines = LINES.slice(0, 1);

  /** What to draw beside the greatest value, by name. */
  choose(names: readonly string[]): void {
    this.lines = LINES.filter((line) => line.name === ALWAYS || names.includes(line.name));
  }

  /** Columns stand elsewhere from now on. */
  forget(): void {
    this.known = new WeakMap();
  }

  /**
   * Draws the lines into a rectangle, and their names right of it. `ratio` is how many pixels of the canvas one of the page is,
   * `large` how much larger than usual the names are.
   */
  draw(
    to: CanvasRenderingContext2D,
    columns: readonly Column[],
    scale: Scale,
    box: Box,
    ratio: number,
    colour: (name: string) => string,
    large = 1,
  ): void {
    const ends: { name: string; colour: string; y: number }[] = [];
    for (const line of this.lines) {
      const thick = Math.max(1, Math.round(line.width * ratio));
      to.fillStyle = colour(line.colour);
      let before = NOWHERE;
      let [from, y] = [Math.round(box.left), NOWHERE];
      const step = (until: number) => {
        if (y === NOWHERE) return;
        to.fillRect(from, y, until - from, thick);
        if (before === NOWHERE || before === y) return;
        // Down or up to it from the step before.
        to.fillRect(from, Math.min(before, y), thick, Math.abs(before - y) + thick);
      };
      columns.forEach((column, at) => {
        const left = Math.round(box.left + (at * box.width) / columns.length);
        const share = this.sharesOf(column, scale)[LINES.indexOf(line)]!;
        const next = Number.isNaN(share)
          ? NOWHERE
          : Math.round(box.top + (1 - share) * box.height - thick / 2);
        if (next === y) return;
        step(left);
        [before, from, y] = [y, left, next];
      });
      step(Math.round(box.left + box.width));
      if (y !== NOWHERE) ends.push({ name: line.name, colour: to.fillStyle, y: y + thick / 2 });
    }
    this.name(to, ends, box, ratio, large);
  }

  /** Names stand where their lines end, as near as they can without one on another. */
  private name(
    to: CanvasRenderingContext2D,
    ends: { name: string; colour: string; y: number }[],
    box: Box,
    ratio: number,
    large: number,
  ): void {
    ends.sort((a, b) => a.y - b.y);
    const heights = apart(
      ends.map((end) => end.y),
      LEADING * ratio * large,
      box.top,
      box.top + box.height,
    );
    to.font = `${11 * ratio * large}px system-ui, sans-serif`;
    [to.textAlign, to.textBaseline] = ["left", "middle"];
    ends.forEach((end, at) => {
      to.fillStyle = end.colour;
      to.fillText(end.name, box.left + box.width + 5 * ratio, heights[at]!);
    });
  }

  private sharesOf(column: Column, scale: Scale): Float64Array {
    let shares = this.known.get(column);
    if (!shares) {
      shares = Float64Array.from(LINES, (line) => {
        const value = line.of(column);
        return value === undefined ? NaN : scale.share(value);
      });
      this.known.set(column, shares);
    }
    return shares;
  }
}

interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Moves places in ascending order so that each is `least` from the one before and all are inside, if there is room. */
export function apart(
  places: readonly number[],
  least: number,
  low: number,
  high: number,
): number[] {
  const moved = places.map((place) => Math.min(Math.max(place, low), high));
  for (let at = 1; at < moved.length; at++)
    moved[at] = Math.max(moved[at]!, moved[at - 1]! + least);
  let bound = high;
  for (let at = moved.length - 1; at >= 0; at--) {
    moved[at] = Math.min(moved[at]!, bound);
    bound = moved[at]! - least;
  }
  return moved;
}

export function quantileName(q: number): string {
  return `p${Number((q * 100).toPrecision(12))}`;
}
