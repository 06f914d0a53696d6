/** Marks of time of a chart of uPlot. */

import type uPlot from "uplot";

import { placeLabels } from "./markLabels";
import { cssValue, fontScale } from "./screen";
import { describeMark, MARK_COLOURS, type TimeMark } from "./timeMarks.svelte";

/** Pixels from the line of a mark in which the pointer shows its text. */
const NEAR = 6;

/**
 * Draws marks over a chart, without texts if another chart above it has them. A pointer near the
 * line of one shows its time and text.
 */
export function markPlugin(marks: () => readonly TimeMark[], hasTexts = true): uPlot.Plugin {
  return {
    hooks: {
      draw: (u) => paint(u, marks(), hasTexts),
      setCursor: (u) => {
        const { left = -NEAR } = u.cursor;
        const isNear = ({ start }: TimeMark) => Math.abs(u.valToPos(start, "x") - left) < NEAR;
        u.over.title = marks().filter(isNear).map(describeMark).join("\n");
      },
    },
  };
}

/** Height of a row of texts, in pixels, and the share of a chart that rows may take. */
const ROW = 15;
const ROWS_SHARE = 0.4;

/**
 * A line and a triangle at the start of each mark, a bar at the top up to its end, and its text in
 * whole; the number of marks whose texts have no room.
 */
function paint(u: uPlot, marks: readonly TimeMark[], hasTexts: boolean): void {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const right = left + width;
  const shown = marks
    .map(({ kind, start, end, text }) => ({
      kind,
      text,
      at: u.valToPos(start, "x", true),
      until: u.valToPos(end, "x", true),
    }))
    .filter(({ at, until }) => until >= left && at <= right)
    .sort((a, b) => a.at - b.at);
  const size = 5 * devicePixelRatio;
  ctx.save();
  ctx.globalAlpha = 0.8;
  for (const { kind, at, until } of shown) {
    ctx.fillStyle = cssValue(u.root, MARK_COLOURS[kind]);
    const [from, to] = [Math.max(at, left), Math.min(until, right)];
    if (to > from) ctx.fillRect(from, top, to - from, 2 * devicePixelRatio);
    // It began before the chart.
    if (at < left) continue;
    ctx.fillRect(at - 0.5, top, devicePixelRatio, height);
    ctx.beginPath();
    ctx.moveTo(at - size, top);
    ctx.lineTo(at + size, top);
    ctx.lineTo(at, top + 7 * devicePixelRatio);
    ctx.fill();
  }
  if (hasTexts) writeTexts(u, shown);
  ctx.restore();
}

/** Texts of marks by position, over the lines of others. */
function writeTexts(
  u: uPlot,
  marks: readonly Pick<TimeMark & { at: number }, "kind" | "text" | "at">[],
): void {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const scale = devicePixelRatio * fontScale();
  const row = ROW * scale;
  ctx.font = `${11 * scale}px system-ui, sans-serif`;
  [ctx.textAlign, ctx.textBaseline] = ["left", "top"];
  const write = (text: string, x: number, at: number, colour: string) => {
    const y = top + (at + 0.5) * row;
    // On a plate: lines of the chart and of other marks do not cross it.
    ctx.globalAlpha = 0.92;
    ctx.fillStyle = cssValue(u.root, "--plot");
    ctx.fillRect(x - 2 * scale, y - 2 * scale, ctx.measureText(text).width + 4 * scale, row);
    ctx.globalAlpha = 1;
    ctx.fillStyle = cssValue(u.root, colour);
    ctx.fillText(text, x, y);
  };
  const rows = Math.max(1, Math.floor((height * ROWS_SHARE) / row));
  const labels = marks.map(({ at, text }) => {
    return { at: Math.max(at, left), width: ctx.measureText(text).width };
  });
  const places = placeLabels(labels, [left, left + width], rows, scale);
  places.forEach((place, index) => {
    const { text, kind } = marks[index]!;
    if (place) write(text, place.x, place.row, MARK_COLOURS[kind]);
  });
  const omitted = places.filter((place) => place === null).length;
  if (omitted > 0) write(`${omitted} more: point at a line`, left + scale, rows, "--text-2");
}
