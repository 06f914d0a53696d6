/** Sources as an operator sees them: whether they deliver, how much, since when, what failed. */

import { formatCount } from "./unit";

/** A scrape target or a check of the server's settings, from `/v1/status`. */
export interface TargetJson {
  kind: "scrape" | "check";
  name: string;
  url: string;
  labels: Record<string, string>;
  interval_ns: number;
  timeout_ns: number;
  state: "up" | "down" | "unknown";
  since_ns: number | null;
  last_ns: number | null;
  last_duration_ns: number | null;
  last_samples: number | null;
  last_error: { at_ns: number; reason: string } | null;
}

/** Targets that are down first, then those that are unknown; otherwise by name. */
export function sortTargets(targets: readonly TargetJson[]): TargetJson[] {
  const ORDER = { down: 0, unknown: 1, up: 2 } as const;
  return [...targets].sort(
    (a, b) => ORDER[a.state] - ORDER[b.state] || a.name.localeCompare(b.name),
  );
}

/** Producers of the server itself: an action of a user, unlike a sender, is not expected again. */
const ACTIONS = new Set(["rename", "retire", "delete", "annotations"]);

/** Whether a producer sends data, as opposed to an action of a user. */
export function isSender(name: string): boolean {
  return !ACTIONS.has(name);
}

/** A source of batches, from `/v1/status`. */
export interface SourceJson {
  id: string;
  name: string;
  /** `unknown`: too few batches to know how often it sends. */
  state: "sending" | "absent" | "unknown";
  last_ns: number;
  /** Usual interval, and the absence that is reported. */
  interval_ns: number | null;
  absent_after_ns: number | null;
}

/** Counts of senders over time: the audit has totals, an operator wants rates. */
export class SenderRates {
  private readonly previous = new Map<string, { at: number; values: number }>();
  private readonly rates = new Map<string, number | null>();

  /**
   * Takes the totals at a time; returns the values (single measurements, as the audit counts them)
   * per second of each sender between the last two calls, null before the second.
   */
  update(at: number, totals: ReadonlyMap<string, number>): ReadonlyMap<string, number | null> {
    for (const [id, values] of totals) {
      const before = this.previous.get(id);
      if (before && at <= before.at) continue;
      // The count of a server that was started again begins at zero.
      const more = before && (values >= before.values ? values - before.values : values);
      this.rates.set(id, before ? more! / ((at - before.at) / 1e3) : null);
      this.previous.set(id, { at, values });
    }
    return this.rates;
  }
}

export function formatRate(rate: number | null): string {
  if (rate === null) return "…";
  return rate >= 10 || rate === 0 ? formatCount(rate) : String(Number(rate.toPrecision(2)));
}
