/** Screens from a hand's to a wall's: how tall pictures are, and how large the texts in them. */

import { innerHeight } from "svelte/reactivity/window";

/** Pixels of the texts of a desk's screen; app.css has larger ones for walls, which are read from afar. */
const DESK = 14;

/** A share of the screen's height. */
export function tall(least: number, share: number): number {
  return Math.round(Math.max(least, (innerHeight.current ?? 0) * share));
}

/** What is left of the screen's height when other things have taken so much of it. */
export function rest(least: number, taken: number): number {
  return Math.round(Math.max(least, (innerHeight.current ?? 0) - taken * enlarged()));
}

/** How much larger texts are than on a desk. */
export function enlarged(): number {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / DESK;
}

/** The font of texts in pictures. */
export function font(): string {
  return `${Math.round(12 * enlarged())}px system-ui, sans-serif`;
}

/** Keeps what is drawn as wide as its box; what is given back ends both. */
export function fitted(
  drawn: { destroy(): void },
  box: HTMLElement,
  resize: (width: number) => void,
): () => void {
  const observer = new ResizeObserver(([entry]) => resize(entry!.contentRect.width));
  observer.observe(box);
  return () => {
    observer.disconnect();
    drawn.destroy();
  };
}
