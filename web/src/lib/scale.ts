/**
 * A symmetric logarithmic axis: logarithmic on both sides of zero, linear below the decade next to
 * zero, so that it shows zero and negative values.
 */

const bounded = (value: number) => Math.min(Math.max(value, -Number.MAX_VALUE), Number.MAX_VALUE);

/** Round ticks of a linear axis, at most about `max`: multiples of 1, 2 or 5 times 10^n. */
export function linearTicks(low: number, high: number, max: number): number[] {
  const least = (high - low) / Math.max(max, 1);
  if (!(least > 0) || !Number.isFinite(least)) return [low];
  const power = Math.floor(Math.log10(least));
  const steps = [1, 2, 5, 10].map((factor) => Number(`${factor}e${power}`));
  // A quotient may be a rounding error above a factor.
  const step = steps.find((step) => step >= least * (1 - 1e-9)) ?? steps[3]!;
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, at) => {
    return Number(((first + at) * step).toPrecision(12));
  });
}

/** Maps values to a fraction of the axis: 0 at the bottom, 1 at the top. */
export class Scale {
  private readonly bottom: number;
  private readonly height: number;

  /** `least` is the distance from zero at which the logarithmic part begins. */
  constructor(
    readonly low: number,
    readonly high: number,
    readonly least: number,
  ) {
    this.bottom = this.position(low);
    this.height = this.position(high) - this.bottom || 1;
  }

  /** A scale that contains all ranges, with a margin. */
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
    // Beyond twelve decades only a line at zero would be visible.
    least = Math.max(least, Math.max(Math.abs(low), Math.abs(high)) * 1e-12);
    if (low > 0) {
      const [logLow, logHigh] = [Math.log10(low), Math.log10(high)];
      const margin = Math.max((logHigh - logLow) * 0.04, 0.02);
      const least = Math.max(10 ** (logLow - margin), Number.MIN_VALUE);
      return new Scale(least, bounded(10 ** (logHigh + margin)), least);
    }
    const scale = new Scale(low, high, least);
    // The greatest doubles have no margin above them.
    return new Scale(
      bounded(scale.value(low < 0 ? -0.04 : -0.02)),
      bounded(scale.value(1.04)),
      least,
    );
  }

  /** 0 at the bottom, 1 at the top; values outside are beyond. */
  share(value: number): number {
    return (this.position(value) - this.bottom) / this.height;
  }

  /** The value at a fraction of the axis. */
  value(share: number): number {
    const position = this.bottom + share * this.height;
    if (Math.abs(position) <= 1) return position * this.least;
    return Math.sign(position) * 10 ** (Math.abs(position) - 1 + Math.log10(this.least));
  }

  private position(value: number): number {
    // The quotient of extreme doubles overflows; the difference of their logarithms does not.
    const size = Math.abs(value) / this.least;
    return (
      Math.sign(value) *
      (size <= 1 ? size : 1 + Math.log10(Math.abs(value)) - Math.log10(this.least))
    );
  }

  /** Round tick values, at most about `max`: powers of ten, with 2 and 5 of each if they fit. */
  ticks(max: number): number[] {
    const powers = new Set<number>();
    const span =
      Math.log10(Math.max(Math.abs(this.low), Math.abs(this.high))) - Math.log10(this.least);
    const sides = this.low < 0 && this.high > 0 ? 2 : 1;
    const first = Math.floor(Math.log10(this.least));
    const steps = span * sides * 3 <= max ? [1, 2, 5] : [1];
    const stride = Math.max(1, Math.ceil((span * sides * steps.length) / Math.max(max, 1)));
    for (let i = 0; i <= span + 2; i += stride) {
      for (const step of steps) {
        const size = Number(`${step}e${first + i}`);
        if (this.low <= size && size <= this.high) powers.add(size);
        if (this.low <= -size && -size <= this.high) powers.add(-size);
      }
    }
    if (!(this.low <= 0 && 0 <= this.high)) return [...powers].sort((a, b) => a - b);
    // Ticks next to zero would overlap it.
    const distant = [...powers].filter((power) => Math.abs(power) > 1.5 * this.least);
    return [...distant, 0].sort((a, b) => a - b);
  }
}
