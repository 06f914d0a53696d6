/** Lines of a chart: their style, and their values at a position. */

import { HUES } from "./colour";

/** A line of a chart. It has a value for each position of the chart; null is a gap. */
export interface ChartLine {
  name: string;
  /** A custom property of app.css. */
  colour: string;
  points: (number | null)[];
  width?: number;
  dash?: readonly number[];
  /** The maxima that belong to a percentile: the readout (values at the pointer) has them, too. */
  maxima?: (number | null)[];
  /** Values of points that are drawn at the edge of the chart: the readout has these. */
  actual?: (number | null)[];
  /** Drawn, but not in the readout. */
  isUnlisted?: boolean;
}

/** A tick of an axis. */
export interface AxisTick {
  at: number;
  text: string;
}

/** A row of the readout: the value of a line at the pointer, and the maximum beside it. */
export interface ReadoutRow {
  name: string;
  colour: string;
  dash: readonly number[];
  value: number;
  maximum: number | null;
}

const DASHES = [[], [12, 4], [12, 4, 3, 4], [4, 4], [20, 4], [8, 3, 3, 3, 3, 3]] as const;
/** Lines that differ in hue or dashes. */
export const MAX_STYLES = HUES * DASHES.length;

/** The style of the line at an index. The dashes alone tell the first six lines apart. */
export function lineStyle(index: number): { colour: string; dash: readonly number[] } {
  const round = Math.floor(index / HUES);
  return {
    colour: `--line-${(index % HUES) + 1}`,
    dash: DASHES[(index + round) % DASHES.length]!,
  };
}

/** Values at a position, the greatest first. */
export function readoutRows(lines: readonly ChartLine[], at: number): ReadoutRow[] {
  return lines
    .flatMap(({ name, colour, dash = [], points, actual, maxima, isUnlisted }) => {
      const value = (actual ?? points)[at] ?? null;
      if (value === null || isUnlisted) return [];
      return [{ name, colour, dash, value, maximum: maxima?.[at] ?? null }];
    })
    .sort((a, b) => b.value - a.value);
}

/** The index of the position nearest to `x`; positions ascend. Null if there are none. */
export function nearestPosition(positions: readonly number[], x: number): number | null {
  if (positions.length === 0) return null;
  const after = positions.findIndex((position) => position >= x);
  if (after < 0) return positions.length - 1;
  if (after === 0) return 0;
  return x - positions[after - 1]! < positions[after]! - x ? after - 1 : after;
}
