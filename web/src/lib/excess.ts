/**
 * Whether more values than expected are above a threshold, or chance explains them: the arithmetic
 * of crates/query/src/overview/excess.rs, where the method is described.
 */

import type { Bracket } from "./distribution";
import { formatShare } from "./unit";

/** Which share of the values is expected above a threshold; the server decides. */
export interface Expected {
  share: number;
  /** The SLO whose threshold it is, and whose objective allows this share. */
  slo: string | null;
}

/** Above a threshold of no SLO. */
export const DEFAULT_EXPECTED: Expected = { share: 0.01, slo: null };
/** Probability of an excess that chance alone reaches. */
const ALPHA = 0.001;

export type ExcessState = "affected" | "uncertain" | "usual";

/** Uncertain: the bounds of `above` are too wide to tell. */
export function excessState(above: Bracket, count: number, { share }: Expected): ExcessState {
  if (isSignificant(above.lower, count, share)) return "affected";
  return isSignificant(above.upper, count, share) ? "uncertain" : "usual";
}

/** Which share is expected, and by whom: `0.5 % (SLO payments)`. */
export function describeExpected({ share, slo }: Expected): string {
  return `${formatShare(share).replace(" ", "\u00a0")} (${slo === null ? "no SLO" : `SLO ${slo}`})`;
}

const STATE_TEXTS: Readonly<Record<ExcessState, string>> = {
  affected: "more than chance explains (p < 0.001)",
  uncertain: "the bucket at the threshold is too wide to tell",
  usual: "usual",
};

/** How sure an excess is: `1 % (no SLO) expected: usual`. */
export function describeExcess(state: ExcessState, expected: Expected): string {
  return `${describeExpected(expected)} expected: ${STATE_TEXTS[state]}`;
}

/** Columns next to each other, and what is above the threshold in them. */
export interface ExcessPeriod {
  /** First and last column. */
  first: number;
  last: number;
  above: number;
  count: number;
}

/**
 * The columns next to each other with the largest excess: values above, less those expected of all
 * values. Null without one, or if it has all columns that have a value above.
 */
export function largestExcess(
  columns: readonly { above: number; count: number }[],
  { share }: Expected,
): ExcessPeriod | null {
  let best: (ExcessPeriod & { excess: number }) | null = null;
  let open: (ExcessPeriod & { excess: number }) | null = null;
  columns.forEach(({ above, count }, at) => {
    const excess = above - count * share;
    open ??= { first: at, last: at, above: 0, count: 0, excess: 0 };
    open = {
      ...open,
      last: at,
      above: open.above + above,
      count: open.count + count,
      excess: open.excess + excess,
    };
    if (open.excess > (best?.excess ?? 0)) best = open;
    // Columns before it only reduce the excess of what follows.
    if (open.excess <= 0) open = null;
  });
  const total = columns.reduce((sum, { above }) => sum + above, 0);
  const found = best as ExcessPeriod | null;
  return found && found.above < total
    ? { first: found.first, last: found.last, above: found.above, count: found.count }
    : null;
}

function isSignificant(above: number, count: number, share: number): boolean {
  if (above <= count * share) return false;
  const term = (observed: number, expected: number) =>
    observed > 0 ? observed * Math.log(observed / expected) : 0;
  const entropy = term(above, count * share) + term(count - above, count * (1 - share));
  return Math.exp(-entropy) * tailFactor(above, count, share) < ALPHA;
}

/** By how much the bound of a binomial tail is below `exp(-entropy)`. */
function tailFactor(above: number, count: number, share: number): number {
  const rest = count - above;
  if (above <= 0 || rest <= 0) return 1;
  const ratio = (rest * share) / ((above + 1) * (1 - share));
  const factor = 1 / ((1 - ratio) * Math.sqrt((2 * Math.PI * above * rest) / count));
  return ratio < 1 ? Math.min(factor, 1) : 1;
}
