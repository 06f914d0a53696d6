/** Histograms as senders encode them: OTLP exponential and explicit, Circonus log-linear. */

/** Counts by bucket index: bucket i has the values in (base^i, base^(i + 1)]. */
export interface Exponential {
  /** End of the interval, in milliseconds since 1970. */
  end: number;
  scale: number;
  zero?: number;
  positive?: Record<number, number>;
  negative?: Record<number, number>;
}

/** One count more than bounds: the first and the last bucket are open. */
export interface Explicit {
  end: number;
  bounds: readonly number[];
  counts: readonly number[];
}

/** Length of each interval, in milliseconds. */
export const INTERVAL = 10e3;

export function exponential(
  metric: string,
  labels: Record<string, string>,
  of: readonly Exponential[],
): string {
  const dataPoints = of.map(({ end, scale, zero = 0, positive = {}, negative = {} }) => ({
    ...head(end, labels),
    count: String(zero + sum(Object.values(positive)) + sum(Object.values(negative))),
    scale,
    zeroCount: String(zero),
    positive: buckets(positive),
    negative: buckets(negative),
  }));
  return document({
    name: metric,
    exponentialHistogram: { aggregationTemporality: 1, dataPoints },
  });
}

export function explicit(
  metric: string,
  labels: Record<string, string>,
  of: readonly Explicit[],
): string {
  const dataPoints = of.map(({ end, bounds, counts }) => ({
    ...head(end, labels),
    count: String(sum(counts)),
    explicitBounds: bounds,
    bucketCounts: counts.map(String),
  }));
  return document({ name: metric, histogram: { aggregationTemporality: 1, dataPoints } });
}

/** Two digits and an exponent: `[-17, -3, 5]` is five values from −1.8·10⁻³ to −1.7·10⁻³. */
export type Bin = readonly [digits: number, exponent: number, count: number];

/** An HTTPTrap body with a circllhist in base64: length; digits, exponent, size − 1, count. */
export function logLinear(metric: string, end: number, bins: readonly Bin[]): string {
  const bytes = Buffer.alloc(2 + 7 * bins.length);
  bytes.writeUInt16BE(bins.length, 0);
  bins.forEach(([digits, exponent, count], at) => {
    const from = 2 + 7 * at;
    bytes.writeInt8(digits, from);
    bytes.writeInt8(exponent, from + 1);
    bytes.writeUInt8(3, from + 2);
    bytes.writeUInt32LE(count, from + 3);
  });
  return JSON.stringify({ [metric]: { _type: "h", _ts: end, _value: bytes.toString("base64") } });
}

export function sum(numbers: readonly number[]): number {
  return numbers.reduce((a, b) => a + b, 0);
}

function head(end: number, labels: Record<string, string>) {
  return {
    startTimeUnixNano: `${end - INTERVAL}000000`,
    timeUnixNano: `${end}000000`,
    attributes: Object.entries(labels).map(([key, value]) => ({
      key,
      value: { stringValue: value },
    })),
  };
}

function buckets(counts: Record<number, number>) {
  const places = Object.keys(counts).map(Number);
  if (places.length === 0) return { offset: 0, bucketCounts: [] };
  const offset = Math.min(...places);
  const length = Math.max(...places) - offset + 1;
  return {
    offset,
    bucketCounts: Array.from({ length }, (_, at) => String(counts[offset + at] ?? 0)),
  };
}

function document(metric: object): string {
  return JSON.stringify({ resourceMetrics: [{ scopeMetrics: [{ metrics: [metric] }] }] });
}
