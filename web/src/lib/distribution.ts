/**
 * Distributions: non-empty buckets with counts. Statistics are brackets, whose bounds contain the
 * true value. The arithmetic is that of crates/hist, so that a value computed while the threshold
 * is dragged equals the server's.
 */

/** An estimate with bounds. An unknown bound is infinite. */
export interface Bracket {
  lower: number;
  estimate: number;
  upper: number;
}

/** `count` values in [`lower`, `upper`]. */
export interface Cell {
  lower: number;
  upper: number;
  count: number;
}

/** Minimum and maximum, which are often more exact than their cells. */
export interface Extremes {
  min: Bracket;
  max: Bracket;
}

/** Cells in ascending order. Cells of different schemes may overlap. */
export class Distribution {
  readonly count: number;

  constructor(
    readonly cells: readonly Cell[],
    readonly sum: Bracket = exact(0),
    /** As recorded; null if only the cells are known. */
    private readonly extremes: Extremes | null = null,
  ) {
    this.count = cells.reduce((count, cell) => count + cell.count, 0);
  }

  static readonly EMPTY = new Distribution([]);

  /** The union of all values. */
  static merged(parts: readonly Distribution[]): Distribution {
    const cells = new Map<string, Cell>();
    let sum = exact(0);
    for (const part of parts) {
      sum = addBrackets(sum, part.sum);
      for (const cell of part.cells) {
        const key = `${cell.lower} ${cell.upper}`;
        const known = cells.get(key);
        if (known) known.count += cell.count;
        else cells.set(key, { ...cell });
      }
    }
    return new Distribution([...cells.values()].sort(ascending), sum, mergeExtremes(parts));
  }

  get isEmpty(): boolean {
    return this.count === 0;
  }

  get min(): Bracket | null {
    const first = this.cells[0];
    if (!first) return null;
    if (this.extremes) return this.extremes.min;
    const upper = Math.min(...this.cells.map((cell) => cell.upper));
    return { lower: first.lower, estimate: finiteBounds(first)[0], upper };
  }

  get max(): Bracket | null {
    if (this.isEmpty) return null;
    if (this.extremes) return this.extremes.max;
    const greatest = this.cells.reduce((a, b) => (b.upper >= a.upper ? b : a));
    const lower = Math.max(...this.cells.map((cell) => cell.lower));
    return { lower, estimate: finiteBounds(greatest)[1], upper: greatest.upper };
  }

  get mean(): Bracket | null {
    if (this.isEmpty) return null;
    const { lower, estimate, upper } = this.sum;
    return {
      lower: lower / this.count,
      estimate: estimate / this.count,
      upper: upper / this.count,
    };
  }

  /** The value of rank ⌈q · count⌉. */
  quantile(q: number): Bracket | null {
    if (this.isEmpty || !(q >= 0 && q <= 1)) return null;
    const rank = Math.min(Math.max(Math.ceil(q * this.count), 1), this.count);
    // The first and the last rank are minimum and maximum.
    if (this.extremes && rank === 1 && isExact(this.extremes.min)) return this.extremes.min;
    if (this.extremes && rank === this.count && isExact(this.extremes.max))
      return this.extremes.max;
    let before = 0;
    for (const cell of this.cells) {
      if (before + cell.count >= rank) {
        const [first, last] = this.likelyBounds(cell);
        const step = ((last * 0.5 - first * 0.5) / (cell.count + 1)) * 2;
        return { lower: cell.lower, estimate: first + step * (rank - before), upper: cell.upper };
      }
      before += cell.count;
    }
    return null;
  }

  /**
   * The bounds between which a cell's values are taken to lie: where nothing is negative, the cell
   * around zero begins at zero.
   */
  private likelyBounds(cell: Cell): [number, number] {
    const isAroundZero =
      cell.lower < 0 && cell.lower === -cell.upper && Number.isFinite(cell.upper);
    if (isAroundZero && cell === this.cells[0]) return [0, cell.upper];
    if (isAroundZero && cell === this.cells[this.cells.length - 1]) return [cell.lower, 0];
    return finiteBounds(cell);
  }

  /** The number of values greater than a limit. */
  countAbove(limit: number): Bracket {
    let [lower, upper, estimate] = [0, 0, 0];
    for (const cell of this.cells) {
      if (cell.upper <= limit) {
        lower += cell.count;
        upper += cell.count;
      } else if (cell.lower <= limit) {
        upper += cell.count;
        estimate += cell.count * shareBelow(cell, limit, this.likelyBounds(cell));
      }
    }
    const below = lower + Math.round(estimate);
    return { lower: this.count - upper, estimate: this.count - below, upper: this.count - lower };
  }
}

/** Combined extremes, if every non-empty part has them. */
function mergeExtremes(parts: readonly Distribution[]): Extremes | null {
  const known = parts.filter((part) => !part.isEmpty).map((part) => part["extremes"]);
  if (known.length === 0 || known.includes(null)) return null;
  const extremes = known as Extremes[];
  const of = (side: keyof Extremes, choose: (a: number, b: number) => number): Bracket => {
    const pick = (a: Bracket, b: Bracket) => ({
      lower: choose(a.lower, b.lower),
      estimate: choose(a.estimate, b.estimate),
      upper: choose(a.upper, b.upper),
    });
    return extremes.map((one) => one[side]).reduce(pick);
  };
  return { min: of("min", Math.min), max: of("max", Math.max) };
}

export function exact(value: number): Bracket {
  return { lower: value, estimate: value, upper: value };
}

export function addBrackets(a: Bracket, b: Bracket): Bracket {
  return { lower: a.lower + b.lower, estimate: a.estimate + b.estimate, upper: a.upper + b.upper };
}

/** Whether both bounds are equal. */
export function isExact(bracket: Bracket): boolean {
  return bracket.lower === bracket.upper;
}

export function ascending(a: Cell, b: Cell): number {
  return a.lower - b.lower || a.upper - b.upper;
}

/** Finite bounds for drawing: an open cell begins at 0, or is its finite bound. */
export function finiteBounds({ lower, upper }: Cell): [number, number] {
  if (Number.isFinite(lower)) return [lower, Number.isFinite(upper) ? upper : lower];
  if (Number.isFinite(upper)) return upper > 0 ? [0, upper] : [upper, upper];
  return lower === upper ? [lower, upper] : [0, 0];
}

function shareBelow(cell: Cell, limit: number, [lower, upper]: [number, number]): number {
  if (limit >= cell.upper) return 1;
  if (limit < cell.lower) return 0;
  const width = upper * 0.5 - lower * 0.5;
  return width > 0 ? Math.min(Math.max((limit * 0.5 - lower * 0.5) / width, 0), 1) : 0.5;
}
