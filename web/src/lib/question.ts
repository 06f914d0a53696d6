/** Questions in PromQL and CAQL, and what is shown of their answers. */

import { ask, bracket, distribution, gap, type BracketTold, type Gap, type Heatmap } from "./api";
import { Distribution, exact, type Bracket } from "./distribution";
import { quoted } from "./selector";
import { written } from "./time";

export const LANGUAGES = { promql: "PromQL", caql: "CAQL" } as const;
export type Language = keyof typeof LANGUAGES;

/** A number with its bounds at a moment, or a distribution; null is what is neither. */
export interface Point {
  time: number;
  value: Bracket | Distribution | null;
}

export interface Stream {
  labels: Record<string, string>;
  points: Point[];
}

export interface Answer {
  unit: string;
  streams: Stream[];
  /** The greatest values beside percentiles: what was asked for them, and their streams. */
  maxima: { question: string; streams: Stream[] }[];
  warnings: string[];
  gaps: Gap[];
}

type ValueTold = number | string | BracketTold | DistributionTold;

interface DistributionTold {
  count: number;
  sum: BracketTold;
  cells: { lower: number | null; upper: number | null; count: number }[];
}

interface StreamTold {
  labels: Record<string, string>;
  points: { time_ns: number; value: ValueTold }[];
}

interface AnswerTold {
  kind: string;
  unit: string | null;
  data: unknown;
  maxima: { question: string; data: StreamTold[] }[];
  warnings: string[];
  gaps: { start_ns: number; end_ns: number; lost: number | null; reason: string }[];
}

/** Asks at each step between two moments. */
export async function question(
  text: string,
  language: Language,
  [from, to]: readonly [number, number],
  step: number,
  signal: AbortSignal,
): Promise<Answer> {
  const parameters = { query: text, language, from: written(from), to: written(to), step: `${step}ms` };
  const told = await ask<AnswerTold>("/v1/query", parameters, signal);
  return {
    unit: told.unit ?? "",
    streams: streams(told.kind, told.data),
    maxima: told.maxima.map((one) => ({ question: one.question, streams: one.data.map(stream) })),
    warnings: told.warnings,
    gaps: told.gaps.map(gap),
  };
}

function streams(kind: string, data: unknown): Stream[] {
  if (kind === "scalar") return [stream({ labels: {}, points: data as StreamTold["points"] })];
  return kind === "vector" || kind === "matrix" ? (data as StreamTold[]).map(stream) : [];
}

function stream(told: StreamTold): Stream {
  return { labels: told.labels, points: told.points.map(({ time_ns, value }) => ({ time: time_ns / 1e6, value: valueOf(value) })) };
}

function valueOf(told: ValueTold): Bracket | Distribution | null {
  if (typeof told === "number") return exact(told);
  // JSON has no number for these.
  if (typeof told === "string") return told === "NaN" ? null : exact(told === "-Inf" ? -Infinity : Infinity);
  if ("cells" in told) return distribution(told);
  if (!("estimate" in told)) return null;
  const of = bracket(told);
  return Number.isNaN(of.estimate) ? null : of;
}

/** A stream of distributions as a heatmap; null if it is one of numbers. */
export function asHeatmap(name: string, of: Stream, unit: string, [from, to]: readonly [number, number], step: number, gaps: Gap[]): Heatmap | null {
  if (!of.points.some((point) => point.value instanceof Distribution)) return null;
  const at = new Map(of.points.map((point) => [Math.round(point.time), point.value]));
  const columns = [];
  for (let start = from; start < to; start += step) {
    const value = at.get(Math.round(start + step));
    const inside = gaps.filter((gap) => gap.start < start + step && gap.end >= start);
    columns.push({ start, end: start + step, distribution: value instanceof Distribution ? value : Distribution.EMPTY, gaps: inside });
  }
  const total = Distribution.merged(columns.map((column) => column.distribution));
  return { selector: name, series: 1, unit, start: from, end: to, step, total, columns };
}

/** Labels as they are written in a selector. */
export function named(labels: Record<string, string>): string {
  const { __name__: name = "", ...rest } = labels;
  const pairs = Object.entries(rest).map(([label, value]) => `${label}=${quoted(value)}`);
  return pairs.length > 0 ? `${name}{${pairs.join(", ")}}` : name || "all";
}

/** Where a mistake is: `2:7: expected …` becomes its line, the place in it, and what is wrong. Null without a place. */
export function mistake(message: string, text: string): { line: string; column: number; what: string } | null {
  const found = /^(\d+):(\d+): (.*)$/s.exec(message);
  if (!found) return null;
  const line = text.split("\n")[Number(found[1]) - 1] ?? "";
  return { line, column: Number(found[2]) - 1, what: found[3]! };
}
