/**
 * Colours of counts. The ramp has monotonic lightness, so that it is readable in greyscale and with
 * any colour vision. Its first step contrasts with the background: a single value is visible.
 */

/** Colours `--line-1` to `--line-12` of app.css. */
export const HUES = 12;

export type ColourScale = "log" | "linear" | "equalised";

/** Steps of the ramp; the first is for the smallest count above zero. */
export const STEPS = 256;

export type Rgb = readonly [number, number, number];

const LIGHT: readonly Rgb[] = [
  [199, 219, 240],
  [140, 181, 222],
  [74, 135, 196],
  [30, 89, 160],
  [12, 48, 108],
  [6, 20, 58],
];
const DARK: readonly Rgb[] = [
  [38, 60, 104],
  [40, 96, 152],
  [38, 140, 178],
  [72, 184, 180],
  [152, 222, 170],
  [248, 250, 200],
];

/** The ramp as RGBA pixels in the byte order of a canvas. */
export function ramp(isDark: boolean): Uint32Array {
  const stops = isDark ? DARK : LIGHT;
  const pixels = new Uint32Array(STEPS);
  const bytes = new Uint8ClampedArray(pixels.buffer);
  for (let step = 0; step < STEPS; step++) {
    const at = (step / (STEPS - 1)) * (stops.length - 1);
    const from = Math.min(Math.floor(at), stops.length - 2);
    const [a, b] = [stops[from]!, stops[from + 1]!];
    for (let channel = 0; channel < 3; channel++) {
      bytes[4 * step + channel] = a[channel]! + (b[channel]! - a[channel]!) * (at - from);
    }
    bytes[4 * step + 3] = 255;
  }
  return pixels;
}

/** Maps counts above zero to steps of the ramp. */
export interface ColourSteps {
  /** The step of a count. */
  toStep(count: number): number;
  /** The count at which a step begins, for the legend. */
  countAt(step: number): number;
}

/** Steps for counts up to `max`. Equalising needs all counts above zero. */
export function colourSteps(
  colouring: ColourScale,
  min: number,
  max: number,
  counts: () => Float64Array,
): ColourSteps {
  const last = STEPS - 1;
  const bounded = (step: number) => Math.min(Math.max(Math.floor(step), 0), last);
  if (!(max > 0)) return { toStep: () => 0, countAt: () => 0 };
  if (colouring === "linear") {
    return {
      toStep: (count) => bounded((count / max) * last),
      countAt: (step) => (step / last) * max,
    };
  }
  if (colouring === "log") {
    const from = Math.log(Math.min(min, max));
    const width = Math.log(max) - from || 1;
    return {
      toStep: (count) => bounded(((Math.log(count) - from) / width) * last),
      // Equal counts have a ramp too, which ends where it begins.
      countAt: (step) => Math.min(Math.exp(from + (step / last) * width), max),
    };
  }
  // Histogram equalisation: each step has as many cells as every other.
  const sorted = counts().slice().sort();
  const limits = new Float64Array(STEPS);
  for (let step = 0; step < STEPS; step++) {
    limits[step] = sorted[Math.floor((step / STEPS) * sorted.length)] ?? max;
  }
  return {
    toStep(count) {
      let [low, high] = [0, last];
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (limits[middle]! <= count) low = middle;
        else high = middle - 1;
      }
      return low;
    },
    countAt: (step) => limits[step] ?? max,
  };
}
