/** Sources as an operator sees them: whether they deliver, how much, since when, what failed. */

import { formatCount } from "./unit";

/** A scrape or a check of the server's settings, from `/v1/status`. */
export interface TargetJson {
  kind: "scrape" | "check";
  name: string;
  url: string;
  labels: Record<string, string>;
  interval_ns: number;
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

export interface SenderActivity {
  /** Values per second between the last two readings; null before the second. */
  rate: number | null;
  /** When the count was seen to grow, in milliseconds; null if not since the first reading. */
  lastGrowth: number | null;
}

interface SenderReading {
  at: number;
  values: number;
  activity: SenderActivity;
}

/** Counts of senders over time: the audit has totals, an operator wants rates. */
export class SenderRates {
  private readonly readings = new Map<string, SenderReading>();
  private firstAt: number | null = null;

  /** Takes the totals at a time; returns the activity of each sender. */
  update(at: number, totals: ReadonlyMap<string, number>): Map<string, SenderActivity> {
    const isFirst = this.firstAt === null;
    this.firstAt ??= at;
    for (const [id, values] of totals) {
      const before = this.readings.get(id);
      if (!before) {
        // A sender that appears while the page is open has just sent.
        const lastGrowth = isFirst ? null : at;
        this.readings.set(id, { at, values, activity: { rate: null, lastGrowth } });
      } else if (at > before.at) {
        // The count of a server that was started again begins at zero.
        const more = values >= before.values ? values - before.values : values;
        const lastGrowth = more > 0 ? at : before.activity.lastGrowth;
        const rate = more / ((at - before.at) / 1e3);
        this.readings.set(id, { at, values, activity: { rate, lastGrowth } });
      }
    }
    return new Map([...this.readings].map(([id, { activity }]) => [id, activity]));
  }

  /** Milliseconds since the last growth, or since the first reading if there was none. */
  silence(activity: SenderActivity, now: number): number {
    return now - (activity.lastGrowth ?? this.firstAt ?? now);
  }
}

export function formatRate(rate: number | null): string {
  if (rate === null) return "…";
  return rate >= 10 || rate === 0 ? formatCount(rate) : String(Number(rate.toPrecision(2)));
}
