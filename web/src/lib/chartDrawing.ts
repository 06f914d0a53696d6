/**
 * A chart as a file: the same drawing as SVG and, on a canvas, as PNG; and its numbers as CSV.
 * Unlike the chart on the screen it has a title and a legend.
 */

import type { AxisTick, ChartLine } from "./chartLine";

/** A cell of a heatmap, in the coordinates of its chart, and its CSS colour. */
export interface DrawnCell {
  x: readonly [number, number];
  y: readonly [number, number];
  colour: string;
}

/** A chart with all of its texts. */
export interface ChartDrawing {
  title: string;
  /** Below the lines. */
  cells?: readonly DrawnCell[];
  lines: readonly ChartLine[];
  positions: readonly number[];
  x: readonly [number, number];
  y: readonly [number, number];
  xTicks: readonly AxisTick[];
  yTicks: readonly AxisTick[];
  threshold: AxisTick | null;
  /** Resolves a custom property of app.css. */
  colour: (name: string) => string;
}

/** What SVG and canvas have in common. Lengths are in pixels. */
interface DrawingSurface {
  rectangle(x: number, y: number, width: number, height: number, colour: string): void;
  line(points: readonly Point[], colour: string, width: number, dash: readonly number[]): void;
  text(
    text: string,
    x: number,
    y: number,
    colour: string,
    align: "left" | "center" | "right",
  ): void;
}

type Point = readonly [number, number];

const WIDTH = 1_000;
const PLOT_HEIGHT = 400;
const MARGIN = { left: 90, right: 40, top: 44, bottom: 34 };
const LEADING = 20;
const FONT = "13px system-ui, sans-serif";

const listed = ({ lines }: ChartDrawing) => lines.filter((line) => !line.isUnlisted);

function heightOf(chart: ChartDrawing): number {
  return MARGIN.top + PLOT_HEIGHT + MARGIN.bottom + (listed(chart).length + 0.5) * LEADING;
}

function draw(chart: ChartDrawing, to: DrawingSurface): void {
  const { x, y, colour } = chart;
  const [left, top] = [MARGIN.left, MARGIN.top];
  const [right, bottom] = [WIDTH - MARGIN.right, top + PLOT_HEIGHT];
  const across = (at: number) => left + ((at - x[0]) / (x[1] - x[0])) * (right - left);
  const down = (at: number) => bottom - ((at - y[0]) / (y[1] - y[0])) * PLOT_HEIGHT;
  const [text, quiet, grid] = [colour("--text"), colour("--text-2"), colour("--grid")];
  to.rectangle(0, 0, WIDTH, heightOf(chart), colour("--card"));
  to.text(chart.title, left, 26, text, "left");
  for (const { at, text } of chart.xTicks) {
    to.line(
      [
        [across(at), top],
        [across(at), bottom],
      ],
      grid,
      1,
      [],
    );
    to.text(text, across(at), bottom + 20, quiet, "center");
  }
  for (const { at, text } of chart.yTicks) {
    to.line(
      [
        [left, down(at)],
        [right, down(at)],
      ],
      grid,
      1,
      [],
    );
    to.text(text, left - 8, down(at) + 4, quiet, "right");
  }
  // Cells hide the grid: it would be brighter than the darkest of them.
  for (const cell of chart.cells ?? []) {
    const [from, until] = cell.x.map((at) => Math.min(Math.max(across(at), left), right));
    const [low, high] = cell.y.map((at) => Math.min(Math.max(down(at), top), bottom));
    to.rectangle(from!, high!, until! - from!, low! - high!, cell.colour);
  }
  for (const line of chart.lines) {
    const inside = chart.positions.map((at, index): Point | null => {
      const value = line.points[index] ?? null;
      return value === null || at < x[0] || at > x[1] ? null : [across(at), down(value)];
    });
    for (const part of connected(inside))
      to.line(part, colour(line.colour), line.width ?? 2, line.dash ?? []);
  }
  const { threshold } = chart;
  if (threshold && threshold.at >= y[0] && threshold.at <= y[1]) {
    const at = down(threshold.at);
    to.line(
      [
        [left, at],
        [right, at],
      ],
      colour("--alert"),
      2,
      [],
    );
    to.text(threshold.text, right - 4, at - 5, colour("--alert"), "right");
  }
  listed(chart).forEach((line, at) => {
    const middle = bottom + MARGIN.bottom + (at + 0.5) * LEADING;
    to.line(
      [
        [left, middle],
        [left + 32, middle],
      ],
      colour(line.colour),
      3,
      line.dash ?? [],
    );
    to.text(line.name, left + 42, middle + 4, text, "left");
  });
}

/** Parts without a gap. */
function connected(points: readonly (Point | null)[]): Point[][] {
  const parts: Point[][] = [[]];
  for (const point of points) {
    if (point) parts[parts.length - 1]!.push(point);
    else parts.push([]);
  }
  return parts.filter((part) => part.length > 0);
}

const escaped = (text: string) =>
  text.replace(/\p{C}/gu, " ").replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);
const short = (number: number) => String(Number(number.toFixed(2)));

class SvgSurface implements DrawingSurface {
  readonly elements: string[] = [];

  rectangle(x: number, y: number, width: number, height: number, colour: string): void {
    this.elements.push(
      `<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" ` +
        `fill="${colour}"/>`,
    );
  }

  line(points: readonly Point[], colour: string, width: number, dash: readonly number[]): void {
    const path = points.map(([x, y]) => `${short(x)},${short(y)}`).join(" ");
    const dashes = dash.length > 0 ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    const style = `fill="none" stroke="${colour}" stroke-width="${width}"${dashes}`;
    this.elements.push(`<polyline points="${path}" ${style}/>`);
  }

  text(text: string, x: number, y: number, colour: string, align: string): void {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    this.elements.push(
      `<text x="${short(x)}" y="${short(y)}" fill="${colour}" text-anchor="${anchor}">` +
        `${escaped(text)}</text>`,
    );
  }
}

class CanvasSurface implements DrawingSurface {
  constructor(private readonly context: CanvasRenderingContext2D) {
    context.font = FONT;
  }

  rectangle(x: number, y: number, width: number, height: number, colour: string): void {
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, width, height);
  }

  line(points: readonly Point[], colour: string, width: number, dash: readonly number[]): void {
    [this.context.strokeStyle, this.context.lineWidth] = [colour, width];
    this.context.setLineDash([...dash]);
    this.context.beginPath();
    for (const [x, y] of points) this.context.lineTo(x, y);
    this.context.stroke();
  }

  text(text: string, x: number, y: number, colour: string, align: CanvasTextAlign): void {
    [this.context.fillStyle, this.context.textAlign] = [colour, align];
    this.context.fillText(text, x, y);
  }
}

export function toSvg(chart: ChartDrawing): string {
  const surface = new SvgSurface();
  draw(chart, surface);
  const height = heightOf(chart);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" ` +
    `viewBox="0 0 ${WIDTH} ${height}" font-family="system-ui, sans-serif" font-size="13">\n` +
    `${surface.elements.join("\n")}\n</svg>\n`
  );
}

/** Twice as many pixels as the SVG, for dense screens. */
export async function toPng(chart: ChartDrawing): Promise<Blob> {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * WIDTH, 2 * heightOf(chart)];
  const context = canvas.getContext("2d");
  if (!context) throw new Error("cannot draw the chart: the browser has no 2D canvas");
  context.scale(2, 2);
  draw(chart, new CanvasSurface(context));
  return new Promise((done, fail) => {
    const error = new Error("cannot encode the chart as PNG: the browser refuses; export SVG");
    canvas.toBlob((blob) => (blob ? done(blob) : fail(error)), "image/png");
  });
}

/**
 * A row for each position, a column for each line; maxima of percentiles too. Values are in `unit`,
 * which the header names. A gap is an empty field.
 */
export function toCsv(chart: Pick<ChartDrawing, "lines" | "positions">, unit: string): string {
  const named = ({ name }: ChartLine) => (unit === "" ? name : `${name} (${unit})`);
  const rows = [
    ["time", ...chart.lines.map(named)],
    ...chart.positions.map((at, index) => [
      new Date(at).toISOString(),
      ...chart.lines.map((line) => String(line.points[index] ?? "")),
    ]),
  ];
  return csvRows(rows);
}

/** Rows as CSV (RFC 4180). */
export function csvRows(rows: readonly (readonly string[])[]): string {
  return rows.map((row) => `${row.map(csvField).join(",")}\r\n`).join("");
}

function csvField(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
