/** Gaps as a sentence: each gap once, even if it overlaps many columns. */

import type { Gap } from "./api";
import { formatCount } from "./unit";

const MAX_REASONS = 3;

/** Null if there are no gaps. */
export function describeGaps(gaps: readonly Gap[]): string | null {
  const byKey = new Map(gaps.map((gap) => [`${gap.start} ${gap.end} ${gap.reason}`, gap]));
  if (byKey.size === 0) return null;
  const all = [...byKey.values()];
  const lost = all.reduce((sum, gap) => sum + (gap.lost ?? 0), 0);
  const unknown = all.filter((gap) => gap.lost === null).length;
  const parts = [
    ...(lost > 0
      ? [`${formatCount(lost)} ${lost === 1 ? "sample or record" : "samples or records"} missing`]
      : []),
    ...(unknown > 0
      ? [`${formatCount(unknown)} ${unknown === 1 ? "gap" : "gaps"} of unknown size`]
      : []),
  ];
  const reasons = [...new Set(all.map((gap) => gap.reason))];
  const more = reasons.length - MAX_REASONS;
  const list = reasons.slice(0, MAX_REASONS).join("; ");
  const rest = more > 0 ? `; ${more} more reasons` : "";
  return `${parts.join(", ") || "0 samples missing"}: ${list}${rest}`;
}
