/** A rectangle of a heatmap, as it is written in the address. */

export interface Rectangle {
  /** Milliseconds since 1970. */
  from: number;
  to: number;
  /** In the unit of the heatmap. */
  low: number;
  high: number;
}

export function writeRectangle({ from, to, low, high }: Rectangle): string {
  return [Math.floor(from), Math.ceil(to), low, high].join(",");
}

/** Null if the text is not a rectangle. */
export function parseRectangle(text: string): Rectangle | null {
  const numbers = text.split(",").map((part) => (part.trim() === "" ? NaN : Number(part)));
  if (numbers.length !== 4 || !numbers.every(Number.isFinite)) return null;
  const [from, to, low, high] = numbers as [number, number, number, number];
  return from < to && low < high ? { from, to, low, high } : null;
}
