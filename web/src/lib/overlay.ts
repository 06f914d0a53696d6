/**
 * Lines over a heatmap, one value per column. They are drawn as steps, because a maximum or
 * quantile is that of its whole column. Steps are axis-parallel rectangles: sloped strokes cost
 * ten times as much without a GPU, too much for a live heatmap.
 */

import type { HeatmapColumn } from "./api";
import type { Scale } from "./scale";

/** Quantiles that can be drawn as lines. */
export const QUANTILES = [0.5, 0.9, 0.99, 0.999] as const;

interface OverlayLine {
  name: string;
  /** A custom property of app.css. */
  colour: string;
  /** In CSS pixels. */
  width: number;
  of: (column: HeatmapColumn) => number | undefined;
}

const LINES: readonly OverlayLine[] = [
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
    of: (column: HeatmapColumn) => column.distribution.quantile(q)?.estimate,
  })),
];
/** The maximum is always drawn: no quantile shows it. */
const ALWAYS = "max";
/** Optional lines. */
export const LINE_NAMES = LINES.map((line) => line.name).filter((name) => name !== ALWAYS);

/** CSS pixels at the right of a heatmap, for the names of lines. */
export const MARGIN = 46;
/** CSS pixels from one name to the next. */
const LEADING = 13;
/** Outside any canvas. */
const NOWHERE = -1;

/** The maximum, and the optional lines of these names. */
export function overlayLines(names: readonly string[]): readonly OverlayLine[] {
  return LINES.filter((line) => line.name === ALWAYS || names.includes(line.name));
}

export class Overlay {
  /** Cached positions of lines on the scale: most columns stay from one frame to the next. */
  private known = new WeakMap<HeatmapColumn, Float64Array>();
  private lines = LINES.slice(0, 1);

  /** Chooses optional lines by name. */
  choose(names: readonly string[]): void {
    this.lines = [...overlayLines(names)];
  }

  /** Clears the cache: the scale has changed. */
  clearCache(): void {
    this.known = new WeakMap();
  }

  /**
   * Draws the lines into a rectangle, and their names right of it. `ratio` is that of canvas to CSS
   * pixels, `large` the scale of the font.
   */
  draw(
    to: CanvasRenderingContext2D,
    columns: readonly HeatmapColumn[],
    scale: Scale,
    box: PixelRect,
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
      // The name stays where the line ends, also if the last columns are empty.
      let end = NOWHERE;
      const step = (until: number) => {
        if (y === NOWHERE) return;
        to.fillRect(from, y, until - from, thick);
        if (before === NOWHERE || before === y) return;
        // The vertical edge from the previous step.
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
        if (y !== NOWHERE) end = y;
      });
      step(Math.round(box.left + box.width));
      if (end !== NOWHERE) ends.push({ name: line.name, colour: to.fillStyle, y: end + thick / 2 });
    }
    this.drawNames(to, ends, box, ratio, large);
  }

  /** Draws names at the ends of their lines, without overlap. */
  private drawNames(
    to: CanvasRenderingContext2D,
    ends: { name: string; colour: string; y: number }[],
    box: PixelRect,
    ratio: number,
    large: number,
  ): void {
    ends.sort((a, b) => a.y - b.y);
    const heights = spreadPositions(
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

  private sharesOf(column: HeatmapColumn, scale: Scale): Float64Array {
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

interface PixelRect {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Moves ascending positions at gap `gap` apart, within [`low`, `high`] if they fit. */
export function spreadPositions(
  positions: readonly number[],
  gap: number,
  low: number,
  high: number,
): number[] {
  const moved = positions.map((position) => Math.min(Math.max(position, low), high));
  for (let at = 1; at < moved.length; at++) moved[at] = Math.max(moved[at]!, moved[at - 1]! + gap);
  let bound = high;
  for (let at = moved.length - 1; at >= 0; at--) {
    moved[at] = Math.min(moved[at]!, bound);
    bound = moved[at]! - gap;
  }
  return moved;
}

export function quantileName(q: number): string {
  return `p${Number((q * 100).toPrecision(12))}`;
}
