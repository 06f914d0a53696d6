/** Draws marks of time over a chart of uPlot. */

import type uPlot from "uplot";

import { fitText, fontScale } from "./screen";
import { MARK_COLOURS, type TimeMark } from "./timeMarks.svelte";

/**
 * A line and a triangle at the start of each mark, a bar at the top up to its end, and its text as
 * far as there is room.
 */
export function paintMarks(
  u: uPlot,
  marks: readonly TimeMark[],
  colour: (name: string) => string,
): void {
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
  ctx.font = `${11 * devicePixelRatio * fontScale()}px system-ui, sans-serif`;
  [ctx.textAlign, ctx.textBaseline] = ["left", "top"];
  shown.forEach(({ kind, at, until, text }, index) => {
    ctx.fillStyle = colour(MARK_COLOURS[kind]);
    ctx.globalAlpha = 0.8;
    const [from, to] = [Math.max(at, left), Math.min(until, right)];
    if (to > from) ctx.fillRect(from, top, to - from, 2 * devicePixelRatio);
    // It began before the chart.
    if (at < left) return;
    ctx.fillRect(at - 0.5, top, devicePixelRatio, height);
    ctx.beginPath();
    ctx.moveTo(at - size, top);
    ctx.lineTo(at + size, top);
    ctx.lineTo(at, top + 7 * devicePixelRatio);
    ctx.fill();
    const next = shown[index + 1]?.at ?? right;
    const fitting = fitText(text, next - at - 3 * size, (one) => ctx.measureText(one).width);
    ctx.globalAlpha = 1;
    ctx.fillText(fitting, at + 2 * size, top + 2 * devicePixelRatio);
  });
  ctx.restore();
}
