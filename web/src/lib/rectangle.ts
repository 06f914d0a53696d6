/** A rectangle of a heatmap, as it is written in the address. */

export interface Rectangle {
  /** Milliseconds since 1970. */
  from: number;
  to: number;
  /** In the unit of the heatmap; `high` may be infinite. */
  low: number;
  high: number;
}

export function writeRectangle({ from, to, low, high }: Rectangle): string {
  return [Math.floor(from), Math.ceil(to), low, high].join(",");
}

/** Null if the text is not a rectangle. */
export function parseRectangle(text: string): Rectangle | null {
  const numbers = text.split(",").map((part) => (part.trim() === "" ? NaN : Number(part)));
  const isValid = numbers.length === 4 && numbers.slice(0, 3).every(Number.isFinite);
  if (!isValid || Number.isNaN(numbers[3])) return null;
  const [from, to, low, high] = numbers as [number, number, number, number];
  return from < to && low < high ? { from, to, low, high } : null;
}
