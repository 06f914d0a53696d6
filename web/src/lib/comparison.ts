/** A comparison in one sentence: which side is faster, by how much, and whether that is chance. */

import type { Bracket } from "./distribution";
import { quantileName } from "./overlay";
import { formatValue, isTimeUnit } from "./unit";

export interface QuantilePair {
  q: number;
  a: Bracket;
  b: Bracket;
  /** Whether the values differ, whatever the bucket resolution hides. */
  significant: boolean;
}

/** Below this p value a difference is not called chance. */
const CHANCE = 0.05;
/** Quantiles of the sentence. */
const QUANTILES = [0.5, 0.99];

/** `B is faster: p50 40 ms against 123 ms (−67 %), p99 … Not chance (p = 0.0005).` */
export function describeComparison(
  quantiles: readonly QuantilePair[],
  pValue: number | null,
  unit: string,
): string {
  const pairs = QUANTILES.flatMap((q) => quantiles.find((one) => one.q === q) ?? []);
  const values = pairs.map((pair) => describePair(pair, unit)).join(", ");
  if (pValue === null) return `Too few intervals to exclude chance: ${values}.`;
  const p = `p = ${pValue < 0.001 ? pValue.toPrecision(1) : pValue.toPrecision(2)}`;
  if (pValue > CHANCE) return `No difference beyond chance: ${values}; ${p}.`;
  return `${describeDirection(pairs, unit)}: ${values}. Not chance (${p}).`;
}

function describePair({ q, a, b }: QuantilePair, unit: string): string {
  const [of, against] = [formatValue(b.estimate, unit), formatValue(a.estimate, unit)];
  return `${quantileName(q)} ${of} against ${against}${describeChange(a.estimate, b.estimate)}`;
}

/** ` (−67 %)`; nothing without a base. */
function describeChange(from: number, to: number): string {
  if (!(from > 0) || !Number.isFinite(to)) return "";
  const percent = Math.round((to / from - 1) * 100);
  if (percent >= 1_000) return ` (${Math.round(to / from)} times)`;
  return ` (${percent < 0 ? "−" : percent > 0 ? "+" : "±"}${Math.abs(percent)} %)`;
}

function describeDirection(pairs: readonly QuantilePair[], unit: string): string {
  const [less, more] = isTimeUnit(unit) ? ["faster", "slower"] : ["lower", "higher"];
  const word = ({ a, b }: QuantilePair) => (b.estimate < a.estimate ? less : more);
  const different = pairs.filter((pair) => pair.significant);
  const words = new Set(different.map(word));
  if (words.size === 0) return "B is different, but not at p50 or p99";
  if (words.size === 1 && different.length === pairs.length) return `B is ${[...words][0]}`;
  return `B is ${different.map((pair) => `${word(pair)} at ${quantileName(pair.q)}`).join(", ")}`;
}
