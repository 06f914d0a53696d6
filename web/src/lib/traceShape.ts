/** Trace shape: the self times of the operations of traces, of a selection against the rest. */

import { ApiError } from "./api";
import type { Bracket } from "./distribution";
import { MIN_EXEMPLARS, type ExemplarJson } from "./exemplars";
import { fetchTrace, readTrace, type Trace } from "./trace";

/** Self times of a trace by operation (service and name of the span), and its weight. */
export interface TraceShape {
  weight: number;
  selfTimes: ReadonlyMap<string, number>;
}

/** Mean self time of an operation in the traces of the selection, and of the rest. */
export interface OperationGrowth {
  operation: string;
  inside: Bracket;
  outside: Bracket;
}

/** Traces of a side that are requested, and how many at a time. */
const MAX_TRACES = 60;
const CONCURRENCY = 4;
/** Operations that are shown. */
const MAX_OPERATIONS = 8;
/** Standard deviations of a confidence of 95 %. */
const Z = 1.96;

/** Weights by trace, of the largest exemplars first: a trace may have several. */
export function tracesOf(exemplars: readonly ExemplarJson[]): [string, number][] {
  const weights = new Map<string, number>();
  for (const { trace_id, weight } of exemplars) {
    if (trace_id) weights.set(trace_id, (weights.get(trace_id) ?? 0) + (weight ?? 1));
  }
  return [...weights];
}

export function shapeOf({ spans }: Trace, weight: number): TraceShape {
  const selfTimes = new Map<string, number>();
  for (const { service, name, selfTime } of spans) {
    const operation = `${service}: ${name}`;
    selfTimes.set(operation, (selfTimes.get(operation) ?? 0) + selfTime);
  }
  return { weight, selfTimes };
}

/** Shapes of the traces that the server has, of at most `MAX_TRACES`. */
export async function fetchShapes(
  traces: readonly (readonly [string, number])[],
  signal: AbortSignal,
): Promise<TraceShape[]> {
  // Evenly, so that large values are no more frequent than in the list.
  const step = Math.max(traces.length / MAX_TRACES, 1);
  const chosen = traces.filter((_, at) => Math.floor(at / step) !== Math.floor((at - 1) / step));
  const shapes: TraceShape[] = [];
  const next = chosen.values();
  const work = async () => {
    for (const [id, weight] of next) {
      try {
        shapes.push(shapeOf(readTrace(await fetchTrace(id, signal)), weight));
      } catch (error) {
        // It is not stored here.
        if (!(error instanceof ApiError) || error.status !== 404) throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
  return shapes;
}

/** Operations whose mean self time differs, those that grew most first; empty if few traces. */
export function compareShapes(
  inside: readonly TraceShape[],
  outside: readonly TraceShape[],
): OperationGrowth[] {
  if (Math.min(inside.length, outside.length) < MIN_EXEMPLARS) return [];
  const operations = new Set([...inside, ...outside].flatMap((one) => [...one.selfTimes.keys()]));
  const growth = ({ inside, outside }: OperationGrowth) => inside.estimate - outside.estimate;
  return [...operations]
    .map((operation) => ({
      operation,
      inside: weightedMean(inside, operation),
      outside: weightedMean(outside, operation),
    }))
    .sort((a, b) => growth(b) - growth(a))
    .slice(0, MAX_OPERATIONS);
}

/**
 * The weighted mean of an operation's self time, 0 in traces without it, with a 95 % confidence
 * interval: normal, with Kish's effective number of a weighted sample.
 */
export function weightedMean(shapes: readonly TraceShape[], operation: string): Bracket {
  const values = shapes.map(({ weight, selfTimes }) => [weight, selfTimes.get(operation) ?? 0]);
  const sum = (of: (weight: number, value: number) => number) =>
    values.reduce((all, [weight, value]) => all + of(weight!, value!), 0);
  const total = sum((weight) => weight);
  const mean = sum((weight, value) => weight * value) / total;
  const n = total ** 2 / sum((weight) => weight ** 2);
  const variance = sum((weight, value) => weight * (value - mean) ** 2) / total;
  const half = Z * Math.sqrt(variance / Math.max(n - 1, 1));
  return { lower: Math.max(mean - half, 0), estimate: mean, upper: mean + half };
}
