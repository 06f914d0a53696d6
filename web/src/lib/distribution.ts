/**
 * Distributions as the server tells them: buckets that are not empty, with counts. All statistics come as a bracket: the truth
 * lies between its ends. The arithmetic is that of crates/hist, so that what the page works out while a person drags equals
 * what the server answers.
 */

/** A number that lies between two others. An end that is not known is infinite. */
export interface Bracket {
  lower: number;
  estimate: number;
  upper: number;
}

/** `count` values between `lower` and `upper`, both included. */
export interface Cell {
  lower: number;
  upper: number;
  count: number;
}

/** The least and the greatest value, which are often known better than their cells. */
export interface Ends {
  min: Bracket;
  max: Bracket;
}

/** Values taken together: cells in ascending order. Those of several grids may overlap. */
export class Distribution {
  readonly count: number;

  constructor(
    readonly cells: readonly Cell[],
    readonly sum: Bracket = exact(0),
    /** Where somebody told; otherwise what the cells tell. */
    private readonly ends: Ends | null = null,
  ) {
    this.count = cells.reduce((count, cell) => count + cell.count, 0);
  }

  static readonly EMPTY = new Distribution([]);

  /** All values of all of them. */
  static merged(parts: readonly Distribution[]): Distribution {
    const cells = new Map<string, Cell>();
    let sum = exact(0);
    for (const part of parts) {
      sum = plus(sum, part.sum);
      for (const cell of part.cells) {
        const key = `${cell.lower} ${cell.upper}`;
        const held = cells.get(key);
        if (held) held.count += cell.count;
        else cells.set(key, { ...cell });
      }
    }
    return new Distribution([...cells.values()].sort(ascending), sum, together(parts));
  }

  get isEmpty(): boolean {
    return this.count === 0;
  }

  /** Of the least value. */
  get min(): Bracket | null {
    const first = this.cells[0];
    if (!first) return null;
    if (this.ends) return this.ends.min;
    const upper = Math.min(...this.cells.map((cell) => cell.upper));
    return { lower: first.lower, estimate: finite(first)[0], upper };
  }

  /** Of the greatest value. */
  get max(): Bracket | null {
    if (this.isEmpty) return null;
    if (this.ends) return this.ends.max;
    const greatest = this.cells.reduce((a, b) => (b.upper >= a.upper ? b : a));
    const lower = Math.max(...this.cells.map((cell) => cell.lower));
    return { lower, estimate: finite(greatest)[1], upper: greatest.upper };
  }

  get mean(): Bracket | null {
    if (this.isEmpty) return null;
    const { lower, estimate, upper } = this.sum;
    return { lower: lower / this.count, estimate: estimate / this.count, upper: upper / this.count };
  }

  /** The value of rank ⌈q · count⌉. */
  quantile(q: number): Bracket | null {
    if (this.isEmpty || !(q >= 0 && q <= 1)) return null;
    const rank = Math.min(Math.max(Math.ceil(q * this.count), 1), this.count);
    // No quantile is beyond what is known of the least and the greatest.
    if (this.ends && rank === 1 && isExact(this.ends.min)) return this.ends.min;
    if (this.ends && rank === this.count && isExact(this.ends.max)) return this.ends.max;
    let before = 0;
    for (const cell of this.cells) {
      if (before + cell.count >= rank) {
        const [first, last] = this.likely(cell);
        const step = (last * 0.5 - first * 0.5) / (cell.count + 1) * 2;
        return { lower: cell.lower, estimate: first + step * (rank - before), upper: cell.upper };
      }
      before += cell.count;
    }
    return null;
  }

  /** Between which ends a cell's values are taken to lie: where nothing is negative, the cell around zero begins at zero. */
  private likely(cell: Cell): [number, number] {
    const isAroundZero = cell.lower < 0 && cell.lower === -cell.upper && Number.isFinite(cell.upper);
    if (isAroundZero && cell === this.cells[0]) return [0, cell.upper];
    if (isAroundZero && cell === this.cells[this.cells.length - 1]) return [cell.lower, 0];
    return finite(cell);
  }

  /** How many values are greater than a limit. */
  above(limit: number): Bracket {
    let [lower, upper, estimate] = [0, 0, 0];
    for (const cell of this.cells) {
      if (cell.upper <= limit) {
        lower += cell.count;
        upper += cell.count;
      } else if (cell.lower <= limit) {
        upper += cell.count;
        estimate += cell.count * shareBelow(cell, limit, this.likely(cell));
      }
    }
    const below = lower + Math.round(estimate);
    return { lower: this.count - upper, estimate: this.count - below, upper: this.count - lower };
  }
}

/** The ends of all of them, if all that are not empty have them. */
function together(parts: readonly Distribution[]): Ends | null {
  const known = parts.filter((part) => !part.isEmpty).map((part) => part["ends"]);
  if (known.length === 0 || known.includes(null)) return null;
  const ends = known as Ends[];
  const of = (side: keyof Ends, choose: (a: number, b: number) => number): Bracket => {
    const pick = (a: Bracket, b: Bracket) => ({ lower: choose(a.lower, b.lower), estimate: choose(a.estimate, b.estimate), upper: choose(a.upper, b.upper) });
    return ends.map((one) => one[side]).reduce(pick);
  };
  return { min: of("min", Math.min), max: of("max", Math.max) };
}

export function exact(value: number): Bracket {
  return { lower: value, estimate: value, upper: value };
}

export function plus(a: Bracket, b: Bracket): Bracket {
  return { lower: a.lower + b.lower, estimate: a.estimate + b.estimate, upper: a.upper + b.upper };
}

/** Whether the ends are the same: nothing is unknown. */
export function isExact(bracket: Bracket): boolean {
  return bracket.lower === bracket.upper;
}

export function ascending(a: Cell, b: Cell): number {
  return a.lower - b.lower || a.upper - b.upper;
}

/** The ends of a cell to draw and to reckon with: an open cell has its finite end twice, or begins at zero. */
export function finite({ lower, upper }: Cell): [number, number] {
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
