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
  /** Whether all counts are whole; those of the PromQL functions rate and increase are not. */
  readonly isWhole: boolean;

  constructor(
    readonly cells: readonly Cell[],
    readonly sum: Bracket = exact(0),
    /** As recorded; null if only the cells are known. */
    private readonly extremes: Extremes | null = null,
  ) {
    this.count = cells.reduce((count, cell) => count + cell.count, 0);
    this.isWhole = cells.every((cell) => Number.isInteger(cell.count));
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
    if (!this.isWhole) return this.fractionalQuantile(q);
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
        const value = clamped(cell.lower, first + step * (rank - before), cell.upper);
        return this.narrowRank(value, rank - before, cell.count);
      }
      before += cell.count;
    }
    return null;
  }

  /** The value below which the share `q` of fractional counts lies. */
  private fractionalQuantile(q: number): Bracket | null {
    let before = 0;
    const rank = q * this.count;
    for (const [at, cell] of this.cells.entries()) {
      const isLast = at === this.cells.length - 1;
      if (cell.count > 0 && (isLast || before + cell.count >= rank)) {
        const [first, last] = this.likelyBounds(cell);
        const share = Math.min((rank - before) / cell.count, 1);
        return clamped(cell.lower, first + (last - first) * share, cell.upper);
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
    const containing: Cell[] = [];
    for (const cell of this.cells) {
      if (cell.upper <= limit) {
        lower += cell.count;
        upper += cell.count;
      } else if (cell.lower <= limit) {
        upper += cell.count;
        estimate += cell.count * shareBelow(cell, limit, this.likelyBounds(cell));
        containing.push(cell);
      }
    }
    const within = this.isWhole ? Math.round(estimate) : estimate;
    let below = { lower, estimate: lower + within, upper };
    if (this.isWhole && containing.length === 1)
      below = this.narrowCount(below, containing[0]!, limit);
    return {
      lower: this.count - below.upper,
      estimate: this.count - below.estimate,
      upper: this.count - below.lower,
    };
  }

  /** The cell that contains a value; null between cells. */
  cellOf(value: number): Cell | null {
    return this.cells.find((cell) => cell.lower <= value && value < cell.upper) ?? null;
  }

  /**
   * The sum above that of all lower ends of the cells, and below that of all upper ends, with the
   * rounding of crates/hist/src/sum_bounds.rs; null without an exact sum.
   */
  private get sumBounds(): { excess: number; deficit: number } | null {
    const mayBeNegative = !this.cells[0] || this.cells[0].lower < 0;
    if (!isExact(this.sum) || !Number.isFinite(this.sum.lower) || mayBeNegative) return null;
    const sum = this.sum.lower;
    const [lowest, highest] = this.cells.reduce(
      ([low, high], { lower, upper, count }) => [low + lower * count, high + upper * count],
      [0, 0],
    );
    const slack = (end: number) =>
      Number.isFinite(end) ? Math.abs(sum) * 1e-6 + Math.abs(end) * 1e-12 : 0;
    const [excess, deficit] = [sum - lowest + slack(lowest), highest - sum + slack(highest)];
    return excess >= 0 && deficit >= 0 ? { excess, deficit } : null;
  }

  /** A count of values below a limit in a wide cell, narrowed by the sum. */
  private narrowCount(below: Bracket, cell: Cell, limit: number): Bracket {
    const bounds = isWide(cell.lower, cell.upper) ? this.sumBounds : null;
    if (!bounds) return below;
    const uses = (all: number, each: number) =>
      all / each < cell.count ? Math.floor(all / each) : cell.count;
    const above = uses(bounds.excess, limit - cell.lower);
    const notAbove = uses(bounds.deficit, cell.upper - limit);
    const lower = below.lower + cell.count - above;
    const upper = Math.min(below.lower + notAbove, below.upper);
    return lower > upper ? below : clamped(lower, below.estimate, upper);
  }

  /** The k-th of `count` values of a wide cell, narrowed by the sum. */
  private narrowRank(value: Bracket, k: number, count: number): Bracket {
    const bounds = isWide(value.lower, value.upper) ? this.sumBounds : null;
    if (!bounds) return value;
    const least = (a: number, b: number) => (a < b ? a : b);
    const upper = least(value.lower + bounds.excess / (count - k + 1), value.upper);
    const lower = -least(bounds.deficit / k - value.upper, -value.lower);
    return lower <= upper ? clamped(lower, value.estimate, upper) : value;
  }
}

/** Whether two bounds of a value differ by more than a factor of two, or in sign. */
export function isWide(lower: number, upper: number): boolean {
  return lower < 0 ? upper > 0 || lower < 2 * upper : upper > 2 * lower;
}

/** A share below a quarter of the 1 % that is expected above a threshold. */
const NARROW_SHARE = 0.0025;

/**
 * Whether the bounds of a count differ by more than a factor of two, and by more than a few of all
 * values: 0 to 3 of thousands says enough.
 */
export function isWideCount({ lower, upper }: Bracket, all: number): boolean {
  return isWide(lower, upper) && upper - lower > NARROW_SHARE * all;
}

function clamped(lower: number, estimate: number, upper: number): Bracket {
  return { lower, estimate: Math.min(Math.max(estimate, lower), upper), upper };
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

/** A lower bound below this share of the upper one is that of a bucket that begins at zero. */
const NEAR_ZERO = 1e-9;

/**
 * Finite bounds on an axis. A bucket from zero to a bound has no smallest value to draw: it begins
 * two decades below its end.
 */
export function drawnBounds(cell: Cell): [number, number] {
  const [lower, upper] = finiteBounds(cell);
  return lower > 0 && lower < upper * NEAR_ZERO ? [upper / 100, upper] : [lower, upper];
}

function shareBelow(cell: Cell, limit: number, [lower, upper]: [number, number]): number {
  if (limit >= cell.upper) return 1;
  if (limit < cell.lower) return 0;
  const width = upper * 0.5 - lower * 0.5;
  return width > 0 ? Math.min(Math.max((limit * 0.5 - lower * 0.5) / width, 0), 1) : 0.5;
}
