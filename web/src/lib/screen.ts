/** Heights of charts and sizes of their texts, from phones to wall displays. */

import { innerHeight } from "svelte/reactivity/window";

/** Font size on a desktop, in pixels; app.css has larger ones for wall displays. */
const BASE_FONT = 14;

/** A fraction of the window's height. */
export function fractionalHeight(least: number, share: number): number {
  return Math.round(Math.max(least, (innerHeight.current ?? 0) * share));
}

/** The window's height less `taken` pixels. */
export function remainingHeight(least: number, taken: number): number {
  return Math.round(Math.max(least, (innerHeight.current ?? 0) - taken * fontScale()));
}

/** Ratio of the font size to that on a desktop. */
export function fontScale(): number {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / BASE_FONT;
}

/** A custom property of app.css. */
export function cssValue(element: HTMLElement, name: string): string {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

/** The font of texts in charts. */
export function chartFont(): string {
  return `${Math.round(12 * fontScale())}px system-ui, sans-serif`;
}

/** The width of the widest text in charts, in pixels. */
export function widestText(texts: readonly string[]): number {
  const context = document.createElement("canvas").getContext("2d");
  if (!context) return 0;
  context.font = chartFont();
  return Math.max(0, ...texts.map((text) => context.measureText(text).width));
}

/** Keeps a chart as wide as its box. The returned function ends that and destroys the chart. */
export function fitToBox(
  chart: { destroy(): void },
  box: HTMLElement,
  resize: (width: number) => void,
): () => void {
  const observer = new ResizeObserver(([entry]) => resize(entry!.contentRect.width));
  observer.observe(box);
  return () => {
    observer.disconnect();
    chart.destroy();
  };
}
