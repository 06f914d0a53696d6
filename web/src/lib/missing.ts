/** What is known to be missing, in words: each gap once, though it touches many columns. */

import type { Gap } from "./api";
import { count } from "./unit";

/** Reasons that are named. */
const MOST = 3;

/** Null if nothing is. */
export function missing(gaps: readonly Gap[]): string | null {
  const known = new Map(gaps.map((gap) => [`${gap.start} ${gap.end} ${gap.reason}`, gap]));
  if (known.size === 0) return null;
  const all = [...known.values()];
  const lost = all.reduce((sum, gap) => sum + (gap.lost ?? 0), 0);
  const unknown = all.filter((gap) => gap.lost === null).length;
  const parts = [
    ...(lost > 0 ? [`${count(lost)} ${lost === 1 ? "value" : "values"}`] : []),
    ...(unknown > 0
      ? [`an unknown number in ${count(unknown)} ${unknown === 1 ? "stretch" : "stretches"}`]
      : []),
  ];
  const reasons = [...new Set(all.map((gap) => gap.reason))];
  const more = reasons.length > MOST ? `; and ${reasons.length - MOST} more reasons` : "";
  return `${parts.join(" and ") || "nothing that counts"}: ${reasons.slice(0, MOST).join("; ")}${more}`;
}
