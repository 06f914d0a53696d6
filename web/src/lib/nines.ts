/** Percentiles on an axis of nines, and what they mean to somebody who makes many requests. */

/** Where a share stands on the axis: 0.9 at 1, 0.99 at 2, 0.999 at 3. */
export function place(q: number): number {
  return -Math.log10(1 - q);
}

/** The share at a place. */
export function share(place: number): number {
  return 1 - 10 ** -place;
}

/** Shares to draw a spectrum of: evenly on the axis, up to where one value remains. */
export function spectrum(count: number, points = 200): number[] {
  // Beyond that a double has no shares below one.
  const last = Math.min(place(1 - 1 / Math.max(count, 2)), 15);
  return Array.from({ length: points }, (_, at) => share((at / (points - 1)) * last));
}

/** A share as people write it: `90`, `99.9`, `99.997`. */
export function percentile(q: number): string {
  const digits = Math.max(0, Math.ceil(place(q)) - 1);
  return `p${Number((q * 100).toFixed(Math.min(digits + 1, 8)))}`;
}

/**
 * The quantile which the worst of `requests` reaches for that part of the users: if requests are slow independently of one
 * another, a session of n has none above the quantile q with probability q^n.
 */
export function reached(requests: number, part: number): number {
  return (1 - part) ** (1 / Math.max(requests, 1));
}

/** The part of sessions with at least one request above the quantile q. */
export function harmed(requests: number, q: number): number {
  return 1 - q ** Math.max(requests, 1);
}
