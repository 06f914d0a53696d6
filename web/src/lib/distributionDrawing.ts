/** A distribution as a file: histogram or percentiles as a drawing, and their numbers as CSV. */

import { csvRows, type ChartDrawing, type DrawnCell } from "./chartDrawing";
import { drawnBounds, type Distribution } from "./distribution";
import * as percentiles from "./percentiles";
import { binRows } from "./raster";
import { Scale } from "./scale";
import { formatCount, formatValue } from "./unit";

/** Bars of a histogram: those of the screen. */
const BARS = 64;

interface Subject {
  title: string;
  distribution: Distribution;
  unit: string;
}

const scaleOf = ({ cells }: Distribution) => Scale.around(cells.map((cell) => drawnBounds(cell)));

/** Bars with logarithmic heights, as on the screen; the axis has counts. */
export function histogramDrawing(
  { title, distribution, unit }: Subject,
  threshold: number | null,
  colour: ChartDrawing["colour"],
): ChartDrawing {
  const scale = scaleOf(distribution);
  const counts = new Float64Array(BARS);
  binRows(distribution, scale, counts);
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  const height = (count: number) => Math.log1p(count) / Math.log1p(most);
  const cells: DrawnCell[] = [...counts].flatMap((count, at) =>
    count > 0
      ? [
          {
            x: [at / BARS, (at + 0.9) / BARS] as const,
            y: [0, height(count)] as const,
            colour: colour("--accent"),
          },
        ]
      : [],
  );
  const marks = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9].filter((count) => count <= most);
  const limit =
    threshold === null
      ? []
      : [
          {
            name: `threshold ${formatValue(threshold, unit)}`,
            colour: "--alert",
            points: [0, 1],
          },
        ];
  const at = threshold === null ? 0 : Math.min(Math.max(scale.share(threshold), 0), 1);
  return {
    title,
    cells,
    lines: limit,
    positions: [at, at],
    x: [0, 1],
    y: [0, 1.05],
    xTicks: scale.ticks(9).map((at) => ({ at: scale.share(at), text: formatValue(at, unit) })),
    yTicks: marks.map((count) => ({ at: height(count), text: formatCount(count) })),
    threshold: null,
    colour,
  };
}

/** A row per bucket; an unknown bound is empty. */
export function histogramCsv({ distribution, unit }: Omit<Subject, "title">): string {
  const bound = (value: number) => (Number.isFinite(value) ? String(value) : "");
  return csvRows([
    [named("lower", unit), named("upper", unit), "count"],
    ...distribution.cells.map(({ lower, upper, count }) => [
      bound(lower),
      bound(upper),
      String(count),
    ]),
  ]);
}

/** Nines between the last percentile on the axis and the maximum, so that their names fit. */
const MIN_DISTANCE = 0.4;

/** Percentiles over an axis of nines, with their bounds. A narrow chart has fewer names. */
export function spectrumDrawing(
  { title, distribution, unit }: Subject,
  colour: ChartDrawing["colour"],
  isNarrow = false,
): ChartDrawing {
  const scale = scaleOf(distribution);
  const quantiles = percentiles.spectrumQuantiles(distribution.count);
  const positions = quantiles.map(percentiles.axisPosition);
  const last = positions.at(-1) ?? 1;
  const points = (end: "lower" | "estimate" | "upper") =>
    quantiles.map((q) => {
      const value = distribution.quantile(q)?.[end];
      return value === undefined ? null : Math.min(Math.max(scale.share(value), 0), 1);
    });
  const nines = Array.from(
    { length: Math.max(Math.floor(last - MIN_DISTANCE), 0) },
    (_, at) => at + 1,
  );
  return {
    title,
    lines: [
      { name: "value", colour: "--accent", points: points("estimate") },
      { name: "lower bound", colour: "--gap", points: points("lower"), width: 1, dash: [2, 3] },
      { name: "upper bound", colour: "--gap", points: points("upper"), width: 1, dash: [2, 3] },
    ],
    positions,
    x: [0, last],
    y: [0, 1],
    xTicks: [
      { at: 0, text: "min" },
      ...(last < 2 * MIN_DISTANCE || isNarrow
        ? []
        : [{ at: percentiles.axisPosition(0.5), text: "p50" }]),
      ...nines.map((at) => ({
        at,
        text: percentiles.percentileName(percentiles.quantileAt(at)),
      })),
      { at: last, text: "max" },
    ],
    yTicks: scale.ticks(12).map((at) => ({ at: scale.share(at), text: formatValue(at, unit) })),
    threshold: null,
    colour,
  };
}

/** A row per percentile of the chart. */
export function spectrumCsv({ distribution, unit }: Omit<Subject, "title">): string {
  const quantiles = percentiles.spectrumQuantiles(distribution.count);
  return csvRows([
    ["quantile", ...["lower", "estimate", "upper"].map((name) => named(name, unit))],
    ...quantiles.map((q) => {
      const value = distribution.quantile(q);
      return [q, value?.lower, value?.estimate, value?.upper].map((one) => String(one ?? ""));
    }),
  ]);
}

function named(name: string, unit: string): string {
  return unit === "" ? name : `${name} (${unit})`;
}
