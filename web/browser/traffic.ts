/** Deterministic traffic: fast requests, a slow class, and a stall of one host and version. */

import type { Point } from "./server";

/** Reproducible numbers in [0, 1) (mulberry32, Tommy Ettinger 2017, public domain). */
export function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface Traffic {
  /** Milliseconds since 1970. */
  end: number;
  hours: number;
  /** Milliseconds of an interval. */
  interval: number;
  /** Requests of an interval on a host. */
  requests: number;
}

/** In the ninth tenth of the range, some requests of host `web-2` take seconds. */
export function traffic({ end, hours, interval, requests }: Traffic): Point[] {
  const next = random(7);
  const normal = () => Math.sqrt(-2 * Math.log(next() || 1e-9)) * Math.cos(2 * Math.PI * next());
  const start = end - hours * 3_600e3;
  const points: Point[] = [];
  for (let at = start; at + interval <= end; at += interval) {
    const part = (at - start) / (end - start);
    const busy = 0.6 + 0.4 * Math.sin(part * 2 * Math.PI);
    for (const host of ["web-1", "web-2", "web-3"]) {
      const values: number[] = [];
      const isStalled = host === "web-2" && part > 0.8 && part < 0.9;
      const count = Math.max(1, Math.round(requests * (0.5 + busy)));
      for (let one = 0; one < count; one++) {
        const kind = next();
        let value =
          kind < 0.9
            ? 0.012 * Math.exp(0.35 * normal())
            : 0.11 * Math.exp(0.3 * normal() + 0.3 * busy);
        if (kind > 0.9995) value = 0.9 * Math.exp(0.3 * normal());
        if (isStalled && next() < 0.04) value = 1.2 + 2.4 * next();
        values.push(value);
      }
      const version = part > 0.5 ? "1.5" : "1.4";
      points.push({
        start: at,
        end: at + interval,
        labels: { host, service: "cart", version },
        values,
      });
    }
  }
  return points;
}
