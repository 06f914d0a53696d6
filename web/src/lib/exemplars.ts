/** Exemplars of a selection, what their attributes say, and operations that are in flight. */

import { getJson, type BracketJson } from "./api";
import type { Bracket } from "./distribution";
import { runQuery } from "./query";
import { metricsOf } from "./queryMetrics";
import type { Rectangle } from "./rectangle";
import { rangeBetween } from "./time";
import type { WireStatusJson } from "./wire";

export interface ExemplarJson {
  time_ns: number;
  /** In the unit of the selection. */
  value: number;
  /** Number of values that it stands for; null if nobody knows. */
  weight: number | null;
  trace_id: string | null;
  /** In the external user interface of the setting `trace_url`. */
  trace_url: string | null;
  labels: Record<string, string>;
  attributes: Record<string, string>;
}

/** Response of `/v1/exemplars`. */
export interface ExemplarsJson {
  count: BracketJson | null;
  /** Number of exemplars that match; the list may have fewer. */
  kept: number;
  /** Since when exemplars are complete. */
  kept_from_ns: number;
  exemplars: ExemplarJson[];
}

/** Exemplars of a selection, which are in the list, and of all others of the heatmap. */
const MAX_EXEMPLARS = 200;
const MAX_OTHERS = 1_000;
/** Exemplars below which a share of them says nothing. */
export const MIN_EXEMPLARS = 20;
const MINUTE = 60e3;
/** Cells of exemplars per decade (docs/exemplars.md). */
const LADDER = [1, 1.5, 2, 3, 5, 7, 10];
/** Beyond the rounding of a bound, and below the distance of any two. */
const ROUNDING = 1e-12;

/**
 * The cells of exemplars that a selection touches, which are coarser: minutes, and the ladder of
 * the server. An interval belongs to the column in which it ends, so its exemplars may precede the
 * column by up to `step`.
 */
export function exemplarCells({ from, to, low, high }: Rectangle, step: number): Rectangle {
  const bound = (value: number, isUpper: boolean) => {
    const decade = 10 ** Math.floor(Math.log10(value * (1 + ROUNDING)));
    const at = LADDER.findLastIndex((bound) => bound * decade <= value * (1 + ROUNDING));
    return LADDER[isUpper ? at + 1 : at]! * decade;
  };
  // A bucket includes its lower bound; a cell too, but not its upper one.
  const [lowest, highest] = [low * (1 + 2 * ROUNDING), high * (1 - 2 * ROUNDING)];
  const isBounded = high > 0 && high < Infinity;
  return {
    from: Math.floor((from - step) / MINUTE) * MINUTE,
    to: Math.ceil(to / MINUTE) * MINUTE,
    low: low > 0 ? bound(lowest, false) * (1 - ROUNDING) : low,
    high: isBounded ? bound(Math.max(lowest, highest), true) * (1 - ROUNDING) : high,
  };
}

/** Whether an exemplar is in a rectangle. */
export function isInside({ time_ns, value }: ExemplarJson, of: Rectangle): boolean {
  const at = time_ns / 1e6;
  return at >= of.from && at <= of.to && value > of.low && value <= of.high;
}

/** Exemplars of a rectangle, the largest first. */
export async function fetchExemplars(
  selector: string,
  { from, to, low, high }: Rectangle,
  signal: AbortSignal,
): Promise<ExemplarsJson> {
  const bound = (value: number) => (Number.isFinite(value) ? String(value) : undefined);
  const response = await getJson<ExemplarsJson>(
    "/v1/exemplars",
    {
      selector,
      ...rangeBetween(from, to),
      above: bound(low),
      up_to: bound(high),
      limit: low === -Infinity ? MAX_OTHERS : MAX_EXEMPLARS,
    },
    signal,
  );
  response.exemplars.sort((a, b) => b.value - a.value);
  return response;
}

/** A value of an attribute: its shares of the selection and of the rest. */
interface AttributeValue {
  value: string;
  inside: Bracket;
  outside: Bracket;
}

/** An attribute of exemplars. */
export interface AttributeShares {
  name: string;
  values: AttributeValue[];
}

/** Attributes, and values of one, that are shown. */
const MAX_ATTRIBUTES = 6;
const MAX_VALUES = 4;

/**
 * Shares of the values that have an attribute, estimated from the weights of exemplars; attributes
 * whose shares differ most for certain come first. Empty if one of the lists is short.
 */
export function compareAttributes(
  inside: readonly ExemplarJson[],
  outside: readonly ExemplarJson[],
): AttributeShares[] {
  if (Math.min(inside.length, outside.length) < MIN_EXEMPLARS) return [];
  const names = [...new Set(inside.flatMap(({ attributes }) => Object.keys(attributes)))];
  const shares = names.map((name) => {
    const of = ({ attributes }: ExemplarJson) => attributes[name] ?? "";
    const values = [...new Set(inside.map(of))].map((value) => ({
      value,
      inside: weightedShare(inside, (one) => of(one) === value),
      outside: weightedShare(outside, (one) => of(one) === value),
    }));
    values.sort((a, b) => excess(b) - excess(a));
    return { name, values: values.slice(0, MAX_VALUES) };
  });
  shares.sort((a, b) => excess(b.values[0]!) - excess(a.values[0]!));
  return shares.slice(0, MAX_ATTRIBUTES);
}

/** By how much the shares differ for certain; negative if their intervals overlap. */
function excess({ inside, outside }: AttributeValue): number {
  return inside.lower - outside.upper;
}

/** A share with its interval, in percent: `80 % (70–87)`. */
export function describeShare(share: Bracket): string {
  const [estimate, lower, upper] = [share.estimate, share.lower, share.upper].map((of) =>
    Math.round(of * 100),
  );
  return `${estimate} % (${lower}–${upper})`;
}

/** Standard deviations of a confidence of 95 %. */
const Z = 1.96;

/**
 * The share of the weight of those that match, with a 95 % confidence interval: Wilson's, with
 * Kish's effective number of a weighted sample (L. Kish, "Survey Sampling", 1965).
 */
export function weightedShare(
  all: readonly ExemplarJson[],
  isMatch: (one: ExemplarJson) => boolean,
): Bracket {
  let [sum, squares, matching] = [0, 0, 0];
  for (const one of all) {
    const weight = one.weight ?? 1;
    sum += weight;
    squares += weight ** 2;
    if (isMatch(one)) matching += weight;
  }
  const [share, n] = [matching / sum, sum ** 2 / squares];
  const centre = share + Z ** 2 / (2 * n);
  const half = Z * Math.sqrt((share * (1 - share)) / n + Z ** 2 / (4 * n ** 2));
  const bound = (at: number) => Math.min(Math.max(at / (1 + Z ** 2 / n), 0), 1);
  return { lower: bound(centre - half), estimate: share, upper: bound(centre + half) };
}

/** An operation that has started and not finished: its value will be at least its age. */
export interface InFlightOperation {
  /** In nanoseconds. */
  age: number;
  labels: Record<string, string>;
}

/**
 * Operations in flight of the programs, or the services on the wire, that record a selection, the
 * oldest first. Of a program it is the oldest operation of each name.
 */
export async function fetchInFlight(
  selector: string,
  now: number,
  signal: AbortSignal,
): Promise<InFlightOperation[]> {
  const [metric] = metricsOf(selector);
  if (!metric) return [];
  const found =
    metric.name === "wire_latency"
      ? await fetchStatements(metric.labels, signal)
      : await fetchOperations(selector, now, signal);
  return found.sort((a, b) => b.age - a.age);
}

async function fetchStatements(
  wanted: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<InFlightOperation[]> {
  const { wire } = await getJson<{ wire?: WireStatusJson | null }>("/v1/status", {}, signal);
  return (wire?.in_flight ?? []).flatMap((one) => {
    const { service, protocol, verb, statement } = one;
    const labels: Record<string, string> = { service, protocol, verb, statement };
    const isOther = Object.entries(wanted).some(([name, value]) => labels[name] !== value);
    return one.wait || isOther ? [] : [{ age: (wire!.as_of_ns ?? 0) - one.oldest_ns, labels }];
  });
}

async function fetchOperations(
  selector: string,
  now: number,
  signal: AbortSignal,
): Promise<InFlightOperation[]> {
  const query =
    "process_in_flight_oldest_seconds > 0 and on (host, process, generation) " +
    `sum by (host, process, generation) (exact_increase(${selector}[1h]))`;
  const { series } = await runQuery(query, "promql", [now, now + 1], 1, signal);
  return series.flatMap(({ labels: { __name__: _, ...labels }, points }) => {
    const value = points[0]?.value;
    return value && "estimate" in value ? [{ age: value.estimate * 1e9, labels }] : [];
  });
}
