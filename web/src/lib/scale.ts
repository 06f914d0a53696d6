/**
 * Where values stand on an axis: logarithmic away from zero, on both sides, and linear across the decade next to zero, so that
 * zero and negative values have a place.
 */

const bounded = (value: number) => Math.min(Math.max(value, -Number.MAX_VALUE), Number.MAX_VALUE);

/** From values to a share of the axis: 0 at the bottom, 1 at the top. */
export class Scale {
  private readonly bottom: number;
  private readonly height: number;

  /** `least` is the distance from zero at which the logarithm begins. */
  constructor(
    readonly low: number,
    readonly high: number,
    readonly least: number,
  ) {
    this.bottom = this.place(low);
    this.height = this.place(high) - this.bottom || 1;
  }

  /** One that shows all of these ranges of values, with a little room. */
  static around(ranges: Iterable<readonly [number, number]>): Scale {
    let [low, high, least] = [Infinity, -Infinity, Infinity];
    for (const [lower, upper] of ranges) {
      low = Math.min(low, lower);
      high = Math.max(high, upper);
      for (const end of [Math.abs(lower), Math.abs(upper)])
        if (end > 0) least = Math.min(least, end);
    }
    if (!Number.isFinite(low)) return new Scale(1, 10, 1);
    if (least === Infinity) return new Scale(-1, 1, 1);
    // More than twelve decades are a line at zero and nothing else.
    least = Math.max(least, Math.max(Math.abs(low), Math.abs(high)) * 1e-12);
    if (low > 0) {
      const [logLow, logHigh] = [Math.log10(low), Math.log10(high)];
      const room = Math.max((logHigh - logLow) * 0.04, 0.02);
      const least = Math.max(10 ** (logLow - room), Number.MIN_VALUE);
      return new Scale(least, bounded(10 ** (logHigh + room)), least);
    }
    const scale = new Scale(low, high, least);
    // The room above the greatest numbers there are is none.
    return new Scale(
      bounded(scale.value(low < 0 ? -0.04 : -0.02)),
      bounded(scale.value(1.04)),
      least,
    );
  }

  /** 0 at the bottom, 1 at the top, beyond it outside. */
  share(value: number): number {
    return (this.place(value) - this.bottom) / this.height;
  }

  /** The value at a share of the axis. */
  value(share: number): number {
    const place = this.bottom + share * this.height;
    if (Math.abs(place) <= 1) return place * this.least;
    return Math.sign(place) * 10 ** (Math.abs(place) - 1 + Math.log10(this.least));
  }

  private place(value: number): number {
    // Of the greatest numbers and the least there is no quotient, but of their logarithms a difference.
    const size = Math.abs(value) / this.least;
    return (
      Math.sign(value) *
      (size <= 1 ? size : 1 + Math.log10(Math.abs(value)) - Math.log10(this.least))
    );
  }

  /** Round values to write beside the axis: powers of ten, and 2 and 5 of each where there is room for `most`. */
  ticks(most: number): number[] {
    const powers = new Set<number>();
    const span =
      Math.log10(Math.max(Math.abs(this.low), Math.abs(this.high))) - Math.log10(this.least);
    const sides = this.low < 0 && this.high > 0 ? 2 : 1;
    const first = Math.floor(Math.log10(this.least));
    const steps = span * sides * 3 <= most ? [1, 2, 5] : [1];
    const stride = Math.max(1, Math.ceil((span * sides * steps.length) / Math.max(most, 1)));
    for (let i = 0; i <= span + 2; i += stride) {
      for (const step of steps) {
        const size = Number(`${step}e${first + i}`);
        if (this.low <= size && size <= this.high) powers.add(size);
        if (this.low <= -size && -size <= this.high) powers.add(-size);
      }
    }
    if (!(this.low <= 0 && 0 <= this.high)) return [...powers].sort((a, b) => a - b);
    // Zero and what is next to it have one place.
    const apart = [...powers].filter((power) => Math.abs(power) > 1.5 * this.least);
    return [...apart, 0].sort((a, b) => a - b);
  }
}
