/** Marks of time of a chart of uPlot. */

import type uPlot from "uplot";

import { cssValue, fitText, fontScale } from "./screen";
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

/**
 * A line and a triangle at the start of each mark, a bar at the top up to its end, and its text as
 * far as there is room.
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
  ctx.font = `${11 * devicePixelRatio * fontScale()}px system-ui, sans-serif`;
  [ctx.textAlign, ctx.textBaseline] = ["left", "top"];
  shown.forEach(({ kind, at, until, text }, index) => {
    ctx.fillStyle = cssValue(u.root, MARK_COLOURS[kind]);
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
    if (!hasTexts) return;
    const next = shown[index + 1]?.at ?? right;
    const fitting = fitText(text, next - at - 3 * size, (one) => ctx.measureText(one).width);
    ctx.globalAlpha = 1;
    ctx.fillText(fitting, at + 2 * size, top + 2 * devicePixelRatio);
  });
  ctx.restore();
}
