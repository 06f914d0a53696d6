/**
 * Whether more values than expected are above a threshold, or chance explains them: the arithmetic
 * of crates/query/src/overview/excess.rs, where the method is described.
 */

import type { Bracket } from "./distribution";

/** Share of the values that is expected above a threshold. */
export const EXPECTED_SHARE = 0.01;
/** Probability of an excess that chance alone reaches. */
const ALPHA = 0.001;

export type ExcessState = "affected" | "uncertain" | "usual";

/** Uncertain: the bounds of `above` are too wide to tell. */
export function excessState(above: Bracket, count: number): ExcessState {
  if (isSignificant(above.lower, count)) return "affected";
  return isSignificant(above.upper, count) ? "uncertain" : "usual";
}

function isSignificant(above: number, count: number): boolean {
  if (above <= count * EXPECTED_SHARE) return false;
  const term = (observed: number, expected: number) =>
    observed > 0 ? observed * Math.log(observed / expected) : 0;
  const entropy =
    term(above, count * EXPECTED_SHARE) + term(count - above, count * (1 - EXPECTED_SHARE));
  return Math.exp(-entropy) < ALPHA;
}
