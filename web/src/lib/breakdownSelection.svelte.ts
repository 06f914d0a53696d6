/**
 * What of a heatmap is selected for a breakdown, or split by label. The rectangle is part of the
 * address. It belongs to the selector and range in which it was dragged: another choice clears it,
 * but the browser's back button restores both.
 */

import { untrack } from "svelte";

import type { Heatmap } from "./api";
import { parseRectangle, snapRectangle, writeRectangle, type Rectangle } from "./rectangle";
import { route } from "./route.svelte";
import { rangeBetween } from "./time";

/** A rectangle of a heatmap. */
export interface HeatmapSelection extends Rectangle {
  /** The heatmap in which the selection was dragged; a live one has newer columns since. */
  of: Heatmap;
}

export class BreakdownSelection {
  selected = $state.raw<(HeatmapSelection & { text: string }) | null>(null);
  /** The heatmap that is split by label. */
  split = $state.raw<Heatmap | null>(null);
  private readonly rectangle = $derived(route.get("breakdown"));
  private earlier: { of: string; rectangle: string } | null = null;

  /**
   * Must be called while a component initialises. `context` identifies selector, range and
   * language.
   */
  constructor(context: () => string, heatmap: () => Heatmap | null) {
    $effect(() => this.forgetLeftOver(context()));
    $effect(() => {
      const [rectangle, of] = [this.rectangle, heatmap()];
      const dragged = parseRectangle(rectangle);
      const shown = untrack(() => this.selected);
      if (!dragged || !of) this.selected = null;
      // A live heatmap has newer columns, which do not change the breakdown.
      else if (shown?.text !== rectangle || shown.of.selector !== of.selector)
        this.selected = { of, text: rectangle, ...dragged };
    });
  }

  /** Selects the columns and buckets that a rectangle touches; clears the selection if none. */
  select(of: Heatmap, drawn: Rectangle): void {
    const snapped = snapRectangle(of.columns, drawn);
    route.set({ breakdown: snapped ? writeRectangle(snapped) : "" });
  }

  /** Selects the same values as many columns earlier (−1) or later (1). */
  move(of: Heatmap, by: number): void {
    const { selected } = this;
    if (!selected) return;
    const { from, to, low, high } = selected;
    const shift = by * (to - from);
    if (from + shift < of.start || to + shift > of.end) return;
    const moved = writeRectangle({ from: from + shift, to: to + shift, low, high });
    route.set({ breakdown: moved }, true);
  }

  /**
   * Which labels the values above a threshold have: the breakdown of all of them. A live range is
   * fixed, so that the count beside the heatmap and the breakdown are of the same values.
   */
  selectAbove(of: Heatmap, low: number): void {
    const { start: from, end: to } = of;
    const breakdown = writeRectangle({ from, to, low, high: Infinity });
    route.set({ ...rangeBetween(from, to), breakdown });
  }

  close(): void {
    route.set({ breakdown: "", baseline: "" });
  }

  private forgetLeftOver(of: string): void {
    const { rectangle, earlier } = this;
    const isLeftOver = earlier !== null && earlier.of !== of && earlier.rectangle === rectangle;
    if (earlier?.of !== of) this.split = null;
    this.earlier = { of, rectangle };
    if (isLeftOver && rectangle !== "") route.set({ breakdown: "" }, true);
  }
}
