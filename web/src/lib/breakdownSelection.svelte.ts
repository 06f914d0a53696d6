/**
 * What of a heatmap is selected for a breakdown, or split by label. The rectangle is part of the
 * address. It belongs to the selector and range in which it was dragged: another choice clears it,
 * but the browser's back button restores both.
 */

import { untrack } from "svelte";

import type { Heatmap } from "./api";
import { parseRectangle, writeRectangle } from "./rectangle";
import { route } from "./route.svelte";
import { rangeBetween } from "./time";

/** A rectangle of a heatmap: times in milliseconds, values in the unit of the heatmap. */
export interface HeatmapSelection {
  /** The heatmap in which the selection was dragged; a live one has newer columns since. */
  of: Heatmap;
  from: number;
  to: number;
  low: number;
  high: number;
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

  /** Selects a rectangle. */
  select(from: number, to: number, low: number, high: number): void {
    route.set({ breakdown: writeRectangle({ from, to, low, high }) });
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
    route.set({ breakdown: "" });
  }

  private forgetLeftOver(of: string): void {
    const { rectangle, earlier } = this;
    const isLeftOver = earlier !== null && earlier.of !== of && earlier.rectangle === rectangle;
    if (earlier?.of !== of) this.split = null;
    this.earlier = { of, rectangle };
    if (isLeftOver && rectangle !== "") route.set({ breakdown: "" }, true);
  }
}
