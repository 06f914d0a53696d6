/**
 * Draws a heatmap: axes by uPlot, cells by `Raster`, lines by `Overlay`. The vertical axis is a
 * `Scale` from 0 to 1. This class is imperative; the component HeatmapChart drives it.
 */

import uPlot from "uplot";

import type { HeatmapColumn, Gap, Heatmap } from "./api";
import { drawnBounds, type Cell } from "./distribution";
import { markPlugin } from "./markPlugin";
import { MARGIN, Overlay } from "./overlay";
import type { Rectangle } from "./rectangle";
import { Raster, ROWS, type HeatmapStyle } from "./raster";
import { Scale } from "./scale";
import { chartFont, cssValue, fontScale } from "./screen";
import * as time from "./time";
import type { TimeMark } from "./timeMarks.svelte";
import { formatValue } from "./unit";

export interface PlotCallbacks {
  /** The index of the column under the pointer. */
  hover(column: number | null): void;
  /** A range was dragged. */
  zoom(from: number, to: number): void;
  /** The threshold was dragged; `settled` once it is released. */
  threshold(value: number, settled: boolean): void;
  /** The browser cancelled the drag of the threshold. */
  cancelled(): void;
  /** A rectangle was dragged, or a point was clicked: then it is that of the pointer. */
  select(rectangle: Rectangle): void;
}

/** Grab distance of the threshold in pixels, for a mouse and for a finger. */
const GRIP = 8;
const FINGER = 20;
/** Pixels around a click in which buckets are meant: some are finer than a pixel. */
const POINT = 2;
/** A shorter drag is a click. */
const MIN_DRAG = 4;

export class HeatmapPlot {
  raster: Raster;
  scale: Scale;
  private readonly plot: uPlot;
  private readonly grip: HTMLDivElement;
  private readonly frame: HTMLDivElement;
  private columns: HeatmapColumn[] = [];
  private marks: readonly TimeMark[] = [];
  private readonly overlays = new Overlay();
  private start = 0;
  private end = 1;
  private unit = "";
  private limit: number | null = null;
  private selected: Rectangle | null = null;
  /** Where a button was pressed, if that may become a click. */
  private pressed: { x: number; y: number } | null = null;
  private dragging = false;
  /** Start of a touch, in pixels from the left. */
  private finger: number | null = null;

  constructor(
    private readonly box: HTMLElement,
    private readonly actions: PlotCallbacks,
    height: number,
  ) {
    this.raster = new Raster(1, ROWS);
    this.scale = new Scale(1, 10, 1);
    this.plot = new uPlot(this.options(box.clientWidth || 600, height), [[]], box);
    this.grip = document.createElement("div");
    this.grip.className = "threshold";
    this.grip.hidden = true;
    this.frame = document.createElement("div");
    this.frame.className = "selected";
    this.plot.over.append(this.frame, this.grip);
    this.plot.over.addEventListener("click", this.click);
    this.plot.over.addEventListener("pointerdown", this.press, { capture: true });
    this.plot.over.addEventListener("mousedown", this.suppressSelection, { capture: true });
    window.addEventListener("pointermove", this.move);
    window.addEventListener("pointerup", this.release);
    window.addEventListener("pointercancel", this.cancel);
  }

  destroy(): void {
    window.removeEventListener("pointermove", this.move);
    window.removeEventListener("pointerup", this.release);
    window.removeEventListener("pointercancel", this.cancel);
    this.plot.destroy();
  }

  resize(width: number, height: number): void {
    this.plot.setSize({ width, height });
    this.placeGrip();
    this.placeFrame();
  }

  /** Draws a heatmap from scratch. */
  show(heatmap: Heatmap, overlays: readonly string[], style: HeatmapStyle): void {
    this.columns = heatmap.columns;
    [this.start, this.end, this.unit] = [heatmap.start, heatmap.end, heatmap.unit];
    this.scale = Scale.around(
      heatmap.total.cells.map((cell) => [finiteLow(cell), finiteHigh(cell)] as const),
    );
    this.raster = new Raster(Math.max(this.columns.length, 1), ROWS);
    this.columns.forEach((column, at) => this.raster.set(at, column.distribution, this.scale));
    this.raster.recolour(style);
    this.overlays.clearCache();
    this.overlay(overlays);
  }

  /**
   * Replaces columns at the right and appends others. Returns false if they do not fit the scale:
   * then the heatmap has to be redrawn.
   */
  follow(
    heatmap: Heatmap,
    replaced: readonly HeatmapColumn[],
    appended: readonly HeatmapColumn[],
  ): boolean {
    const fits = (column: HeatmapColumn) => {
      const cells = column.distribution.cells;
      return cells.every(
        (cell) => this.scale.share(finiteLow(cell)) >= 0 && this.scale.share(finiteHigh(cell)) <= 1,
      );
    };
    if (![...replaced, ...appended].every(fits)) return false;
    replaced.forEach((column, at) => {
      this.raster.replace(
        this.raster.columns - replaced.length + at,
        column.distribution,
        this.scale,
      );
    });
    for (const column of appended) this.raster.push(column.distribution, this.scale);
    this.columns = heatmap.columns;
    [this.start, this.end] = [heatmap.start, heatmap.end];
    this.draw();
    return true;
  }

  recolour(style: HeatmapStyle): void {
    this.raster.recolour(style);
    this.plot.redraw(false);
  }

  /** Chooses lines by name. */
  overlay(overlays: readonly string[]): void {
    this.overlays.choose(overlays);
    this.draw();
  }

  mark(marks: readonly TimeMark[]): void {
    this.marks = marks;
    this.plot.redraw(false);
  }

  /** Moves the cursor to a column, as the pointer does; null hides it. */
  moveCursor(column: HeatmapColumn | null): void {
    const left = column ? this.plot.valToPos((column.start + column.end) / 2, "x") : -10;
    this.plot.setCursor({ left, top: column ? 0 : -10 });
  }

  threshold(limit: number | null): void {
    this.limit = limit;
    this.placeGrip();
  }

  /** Outlines a selection. */
  outline(selected: Rectangle | null): void {
    this.selected = selected;
    this.placeFrame();
  }

  private draw(): void {
    // uPlot draws only the axes, whose range is that of its data.
    this.plot.setData([[this.start, this.end]]);
    this.placeGrip();
    this.placeFrame();
  }

  private options(width: number, height: number): uPlot.Options {
    const text = () => cssValue(this.box, "--text-2");
    const ticks = { stroke: () => cssValue(this.box, "--edge"), width: 1, size: 5 };
    // The cells are the grid.
    const axis = { stroke: text, grid: { show: false }, ticks, font: chartFont() };
    return {
      width,
      height,
      legend: { show: false },
      plugins: [markPlugin(() => this.marks)],
      padding: [12, MARGIN * fontScale(), 0, 0],
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: true, uni: 10, setScale: false },
      },
      scales: { x: { time: false, range: () => [this.start, this.end] }, y: { range: [0, 1] } },
      series: [{}],
      axes: [
        {
          ...axis,
          size: 34 * fontScale(),
          splits: (u) =>
            time.timeTicks(this.start, this.end, Math.max(2, u.bbox.width / devicePixelRatio / 90)),
          values: (_, splits) => time.formatTicks(splits, this.end - this.start),
        },
        {
          ...axis,
          size: 72 * fontScale(),
          splits: (u) =>
            this.scale
              .ticks(u.bbox.height / devicePixelRatio / 26)
              .map((at) => this.scale.share(at)),
          values: (_, splits) =>
            splits.map((share) => formatValue(round(this.scale.value(share)), this.unit)),
        },
      ],
      hooks: {
        drawClear: [(u) => this.paint(u)],
        setCursor: [(u) => this.hover(u)],
        setSelect: [(u) => this.select(u)],
      },
    };
  }

  private paint(u: uPlot): void {
    const { left, top, width, height } = u.bbox;
    const { ctx } = u;
    ctx.save();
    ctx.fillStyle = cssValue(this.box, "--plot");
    ctx.fillRect(left, top, width, height);
    this.raster.draw(ctx, left, top, width, height);
    const seen = new Set<Gap>();
    for (const column of this.columns) {
      for (const gap of column.gaps) {
        if (seen.has(gap)) continue;
        seen.add(gap);
        const from = Math.max(u.valToPos(gap.start, "x", true), left);
        const to = Math.min(u.valToPos(gap.end, "x", true), left + width);
        if (to >= left && from <= left + width)
          hatch(ctx, cssValue(this.box, "--gap"), from, top, Math.max(to - from, 3), height);
      }
    }
    this.overlays.draw(
      ctx,
      this.columns,
      this.scale,
      u.bbox,
      devicePixelRatio,
      (name) => cssValue(this.box, name),
      fontScale(),
    );
    ctx.restore();
  }

  private hover(u: uPlot): void {
    const { left } = u.cursor;
    if (left === undefined || left < 0 || this.columns.length === 0)
      return this.actions.hover(null);
    const at = u.posToVal(left, "x");
    const column = this.columns.findIndex((column) => column.start <= at && at < column.end);
    this.actions.hover(column < 0 ? null : column);
  }

  private select(u: uPlot): void {
    const { left, top, width, height } = u.select;
    if (width < MIN_DRAG) return;
    const [from, to] = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
    const all = u.over.clientHeight;
    if (height > 0 && height < all - 1) {
      const share = (y: number) => 1 - y / all;
      const [low, high] = [top + height, top].map((y) => this.scale.value(share(y)));
      this.actions.select({ from, to, low: low!, high: high! });
    } else {
      this.actions.zoom(from, to);
    }
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  private placeGrip(): void {
    const share = this.limit === null ? -1 : this.scale.share(this.limit);
    this.grip.hidden = this.limit === null;
    const bounded = Math.min(Math.max(share, 0), 1);
    this.grip.style.top = `${(1 - bounded) * this.plot.over.clientHeight}px`;
    this.grip.dataset["label"] = this.limit === null ? "" : formatValue(this.limit, this.unit);
    this.grip.classList.toggle("outside", share !== bounded);
  }

  private placeFrame(): void {
    const { selected, frame } = this;
    frame.hidden = selected === null;
    if (!selected) return;
    const { clientWidth, clientHeight } = this.plot.over;
    const inside = (at: number, size: number) => Math.min(Math.max(at, 0), size);
    const [left, right] = [selected.from, selected.to].map((at) =>
      inside(this.plot.valToPos(at, "x"), clientWidth),
    );
    const [bottom, top] = [selected.low, selected.high].map((value) =>
      inside((1 - this.scale.share(value)) * clientHeight, clientHeight),
    );
    Object.assign(frame.style, {
      left: `${left}px`,
      top: `${top}px`,
      width: `${right! - left!}px`,
      height: `${bottom! - top!}px`,
    });
  }

  private isOnGrip(event: PointerEvent): boolean {
    if (this.limit === null) return false;
    const y = event.clientY - this.plot.over.getBoundingClientRect().top;
    return (
      Math.abs(y - parseFloat(this.grip.style.top)) <=
      (event.pointerType === "touch" ? FINGER : GRIP)
    );
  }

  private readonly press = (event: PointerEvent): void => {
    const isGrip = this.isOnGrip(event);
    // A tap moves the cursor.
    const isClick = !isGrip && event.pointerType !== "touch";
    this.pressed = isClick ? { x: event.clientX, y: event.clientY } : null;
    if (!isGrip) {
      // uPlot ignores touch. A horizontal swipe zooms; a vertical one scrolls, which cancels it.
      if (event.pointerType === "touch")
        this.finger = event.clientX - this.plot.over.getBoundingClientRect().left;
      return;
    }
    this.dragging = true;
    event.stopPropagation();
    event.preventDefault();
  };

  private readonly click = ({ clientX, clientY }: MouseEvent): void => {
    const { pressed, plot } = this;
    const isDrag = !pressed || Math.hypot(clientX - pressed.x, clientY - pressed.y) >= MIN_DRAG;
    if (isDrag) return;
    const { left, top, height } = plot.over.getBoundingClientRect();
    const at = plot.posToVal(clientX - left, "x");
    const value = (y: number) => this.scale.value(1 - y / height);
    const y = clientY - top;
    this.actions.select({ from: at, to: at, low: value(y + POINT), high: value(y - POINT) });
  };

  /** Prevents the selection that uPlot begins at `mousedown`. */
  private readonly suppressSelection = (event: MouseEvent): void => {
    if (this.dragging) event.stopImmediatePropagation();
  };

  private readonly move = (event: PointerEvent): void => {
    // The button may have been released outside the window, without an event.
    if (this.dragging && event.buttons === 0) this.release(event);
    else if (this.dragging) this.drag(event, false);
    else if (this.finger !== null) this.plot.setSelect(this.touchRect(event, this.finger), false);
    else if (event.target instanceof Node && this.plot.over.contains(event.target)) {
      this.plot.over.style.cursor = this.isOnGrip(event) ? "ns-resize" : "crosshair";
    }
  };

  /** The browser took the pointer, to scroll: restores the state before. */
  private readonly cancel = (): void => {
    if (this.finger !== null) this.plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const wasDragging = this.dragging;
    [this.dragging, this.finger] = [false, null];
    if (wasDragging) this.actions.cancelled();
  };

  /** The rectangle from the start of a touch to its current position. */
  private touchRect(
    event: PointerEvent,
    from: number,
  ): { left: number; top: number; width: number; height: number } {
    const { left, width, height } = this.plot.over.getBoundingClientRect();
    const to = Math.min(Math.max(event.clientX - left, 0), width);
    return { left: Math.min(from, to), top: 0, width: Math.abs(to - from), height };
  }

  private readonly release = (event: PointerEvent): void => {
    if (this.finger !== null) {
      const { left, width } = this.touchRect(event, this.finger);
      this.cancel();
      if (width >= FINGER)
        this.actions.zoom(this.plot.posToVal(left, "x"), this.plot.posToVal(left + width, "x"));
      else this.plot.setCursor({ left, top: 0 });
      return;
    }
    if (!this.dragging) return;
    this.dragging = false;
    this.drag(event, true);
  };

  private drag(event: PointerEvent, settled: boolean): void {
    const { top, height } = this.plot.over.getBoundingClientRect();
    const share = 1 - Math.min(Math.max((event.clientY - top) / height, 0), 1);
    this.actions.threshold(readable(this.scale.value(share)), settled);
  }
}

/** Three digits. */
function readable(value: number): number {
  return Number(value.toPrecision(3));
}

/** Removes the rounding error of a tick that was scaled and scaled back. */
function round(value: number): number {
  return Number(value.toPrecision(9));
}

function finiteLow(cell: Cell): number {
  return Number.isFinite(cell.lower) ? drawnBounds(cell)[0] : Math.min(cell.upper, 0);
}

function finiteHigh(cell: Cell): number {
  return Number.isFinite(cell.upper) ? cell.upper : Math.max(cell.lower, 0);
}

/** Gaps are hatched, not only coloured. */
function hatch(
  ctx: CanvasRenderingContext2D,
  colour: string,
  x: number,
  y: number,
  width: number,
  height: number,
): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  const step = 7 * devicePixelRatio;
  for (let at = x - height; at < x + width; at += step) {
    ctx.beginPath();
    ctx.moveTo(at, y + height);
    ctx.lineTo(at + height, y);
    ctx.stroke();
  }
  ctx.restore();
}
