/** Percentiles on an axis of nines, and the percentile that a session of many requests sees. */

/** Position of a quantile on the axis: 0.9 at 1, 0.99 at 2, 0.999 at 3. */
export function axisPosition(q: number): number {
  return -Math.log10(1 - q);
}

/** The quantile at a position. */
export function quantileAt(position: number): number {
  return 1 - 10 ** -position;
}

/** Quantiles of a spectrum, evenly spaced on the axis, up to the one that one value exceeds. */
export function spectrumQuantiles(count: number, points = 200): number[] {
  // Beyond 15 nines a double has no value below 1.
  const last = Math.min(axisPosition(1 - 1 / Math.max(count, 2)), 15);
  return Array.from({ length: points }, (_, at) => quantileAt((at / (points - 1)) * last));
}

/** A quantile's name: `p90`, `p99.9`, `p99.997`. */
export function percentileName(q: number): string {
  const digits = Math.max(0, Math.ceil(axisPosition(q)) - 1);
  return `p${Number((q * 100).toFixed(Math.min(digits + 1, 8)))}`;
}

/**
 * The quantile that the slowest request of a session reaches for this share of sessions. If
 * requests are slow independently, none of n exceeds the quantile q with probability q^n.
 */
export function sessionQuantile(requests: number, share: number): number {
  return (1 - share) ** (1 / Math.max(requests, 1));
}

/** The share of sessions with at least one request above the quantile q. */
export function affectedShare(requests: number, q: number): number {
  return 1 - q ** Math.max(requests, 1);
}
