/** Places of the texts of marks in a chart: whole, and none on another. Lengths in pixels. */

export interface MarkLabel {
  /** Position of the line of the mark. */
  at: number;
  /** Width of its text. */
  width: number;
}

/** Between a text and its line, and between two texts. */
const GAP = 4;

/**
 * For each mark, by position, the start and the row of its text: beside its line, in the first row
 * that is free there. Null if the chart is too narrow, or if all rows are taken.
 */
export function placeLabels(
  labels: readonly MarkLabel[],
  [left, right]: readonly [number, number],
  rows: number,
  scale = 1,
): ({ x: number; row: number } | null)[] {
  const gap = GAP * scale;
  const taken = Array.from({ length: rows }, () => [] as [number, number][]);
  return labels.map(({ at, width }) => {
    if (width > right - left) return null;
    const isRoom = at + gap + width <= right;
    // Left of the line, or as far right as there is room.
    const before = at - gap - width;
    const x = isRoom ? at + gap : before >= left ? before : right - width;
    const isFree = ([from, to]: [number, number]) => to + gap <= x || x + width + gap <= from;
    const row = taken.findIndex((texts) => texts.every(isFree));
    if (row < 0) return null;
    taken[row]!.push([x, x + width]);
    return { x, row };
  });
}
