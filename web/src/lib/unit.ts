/** Numbers with units. Times are stored in nanoseconds and shown in a readable unit. */

import { isExact, type Bracket } from "./distribution";

const TIMES: readonly (readonly [number, string])[] = [
  [86_400e9, "d"],
  [3_600e9, "h"],
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];
const NANOSECONDS: Record<string, number> = {
  ns: 1,
  us: 1e3,
  µs: 1e3,
  ms: 1e6,
  s: 1e9,
  min: 60e9,
  h: 3_600e9,
  d: 86_400e9,
};
const PREFIXES: readonly (readonly [number, string])[] = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** Unit of results that are a share of a whole. */
const SHARE_UNIT = "share, 0 to 1";
/** Units whose numbers are percent already. */
const PERCENT_UNITS = ["percent", "%"];

/** Whether values in the unit are durations. */
export function isTimeUnit(unit: string): boolean {
  return NANOSECONDS[unit] !== undefined;
}

/** Three digits and the unit: `1.53 ms`, `12.4 MB`, `17`. */
export function formatValue(number: number | null, unit: string): string {
  if (number === null || Number.isNaN(number)) return "unknown";
  if (!Number.isFinite(number)) return number > 0 ? "no upper bound" : "no lower bound";
  // Of UCUM: billionths of another program were "250M10*-9".
  const power = /^10\*(-?\d+)\.?/.exec(unit);
  if (power) return formatValue(number * 10 ** Number(power[1]), unit.slice(power[0].length));
  const scale = NANOSECONDS[unit];
  if (scale !== undefined) {
    const ns = number * scale;
    // A tick at zero that was scaled and scaled back is not exactly zero.
    if (Math.abs(ns) < 1e-6) return "0 s";
    const [size, name] =
      TIMES.find(([size]) => Math.abs(ns) >= size * 0.9995) ?? TIMES[TIMES.length - 1]!;
    return `${digits(ns / size)} ${name}`;
  }
  if (unit === SHARE_UNIT) return formatShare(number);
  if (PERCENT_UNITS.includes(unit)) return `${digits(number)} %`;
  const [size, prefix] = PREFIXES.find(([size]) => Math.abs(number) >= size * 0.9995) ?? [1, ""];
  const named = unit === "" ? prefix : ` ${prefix}${unit}`;
  return `${digits(number / size)}${named}`;
}

/** Nanoseconds of a unit of time. */
export function nanosecondsOf(unit: string): number {
  return NANOSECONDS[unit] ?? NaN;
}

/** A number in the unit that fits `greatest`, so that numbers beside it have the same unit. */
export function formatInUnit(number: number, greatest: number, unit: string): string {
  if (unit === SHARE_UNIT || PERCENT_UNITS.includes(unit)) return formatValue(number, unit);
  const scale = NANOSECONDS[unit];
  const sizes = scale === undefined ? PREFIXES : TIMES;
  const [size, name] =
    sizes.find(([size]) => greatest * (scale ?? 1) >= size * 0.9995) ??
    (scale === undefined ? ([1, ""] as const) : TIMES[TIMES.length - 1]!);
  const shown = Number(((number * (scale ?? 1)) / size).toPrecision(6));
  if (scale !== undefined) return `${shown} ${name}`;
  return unit === "" ? `${shown}${name}` : `${shown} ${name}${unit}`;
}

/** The estimate, and the bounds if they differ in three digits: `1.53 ms (1.51–1.55)`. */
export function formatBracket(of: Bracket | null, unit: string): string {
  if (!of) return "no data";
  const estimate = formatValue(of.estimate, unit);
  if (isExact(of)) return estimate;
  const [lower, upper] = [formatValue(of.lower, unit), formatValue(of.upper, unit)];
  if (lower === upper) return estimate;
  const name = estimate.replace(/^[-\d.]+/, "");
  const isSame = [lower, upper].every((end) => end.replace(/^[-\d.]+/, "") === name);
  const bare = (end: string) => end.slice(0, end.length - name.length);
  return isSame
    ? `${estimate} (${bare(lower)}–${bare(upper)})`
    : `${estimate} (${lower} to ${upper})`;
}

/** Both bounds: `0 s to 5 s`, `at least 10 s`, `at most 5 ms`. */
export function formatRange(lower: number, upper: number, unit: string): string {
  // The smallest double above a bound at zero.
  const [from, to] = [Math.abs(lower) < 1e-300 ? 0 : lower, upper];
  if (!Number.isFinite(from)) {
    return Number.isFinite(to) ? `at most ${formatValue(to, unit)}` : "unknown";
  }
  if (!Number.isFinite(to)) return `at least ${formatValue(from, unit)}`;
  return `${formatValue(from, unit)} to ${formatValue(to, unit)}`;
}

/** Digits that a typed or declared threshold may have. */
const TYPED_DIGITS = 6;

/**
 * A value for the address and for fields, which `parseValue` reads back: three digits, as they are
 * shown, with the unit. A number that was typed or declared with a few digits more keeps them.
 */
export function formatInput(number: number, unit: string): string {
  const isShort = Number(number.toPrecision(TYPED_DIGITS)) === number;
  const value = isShort ? number : Number(number.toPrecision(3));
  const text = formatValue(value, unit).replace(" ", "").replace("µ", "u");
  if (isClose(parseValue(text, unit), value)) return text;
  // 62.5 s is 1.04 min: in a unit that needs more digits, or the largest that has no fraction.
  const scale = NANOSECONDS[unit];
  if (scale !== undefined) {
    for (const [size, name] of TIMES) {
      const shown = Number(((value * scale) / size).toPrecision(TYPED_DIGITS));
      if (name !== "d" && name !== "h" && name !== "min" && Math.abs(shown) >= 1) {
        const text = `${shown}${name.replace("µ", "u")}`;
        if (isClose(parseValue(text, unit), value)) return text;
      }
    }
  }
  return `${value}${unit}`;
}

function isClose(read: number | null, number: number): boolean {
  return read !== null && Math.abs(read - number) <= Math.abs(number) * 1e-9;
}

/** A whole count: `1,204`. Beyond 2^53 a double is inexact, which the text says. */
export function formatCount(number: number): string {
  if (number > Number.MAX_SAFE_INTEGER) return `about ${number.toPrecision(4)}`;
  return Math.round(number).toLocaleString("en-GB");
}

/** A count, or the fraction of one that a rate has: `1,204`, `0.983`. */
export function formatFrequency(number: number, isWhole: boolean): string {
  return isWhole ? formatCount(number) : formatValue(number, "");
}

/**
 * A count of the values in a cell of a heatmap. Whole values of a bucket that is higher than a cell
 * are spread over several: `1/40` of a value in each. Fractions of a rate have three digits.
 */
export function formatCellCount(count: number, isWhole: boolean): string {
  if (!isWhole) return formatValue(count, "");
  return count > 0 && count < 0.75 ? `1/${formatCount(1 / count)}` : formatCount(count);
}

/**
 * A share: `3.13 %`, `50 %`, `0.004 %`, `99.972 %`. Two decimals, and more where these would make 0
 * or 100 % of it. The command line has the same.
 */
export function formatShare(share: number): string {
  const percent = Number((share * 100).toPrecision(12));
  const size = Math.abs(percent);
  const distance = size >= 99 && size < 100 ? 100 - size : size;
  const decimals = distance === 0 ? 0 : 1 - Math.floor(Math.log10(distance));
  const text = percent.toFixed(Math.min(Math.max(decimals, 2), 11)).replace(/\.?0+$/, "");
  return `${text} %`;
}

/** Parses `1.5s`, `250 ms`, `12.4MB` or `1e6` into `unit`; null if it is invalid. */
export function parseValue(text: string, unit: string): number | null {
  // Unicode has two code points for µ.
  const found = /^([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(\D\S*)?$/i.exec(
    text.trim().replace("\u03bc", "µ"),
  );
  if (!found) return null;
  const [number, named] = [found[1]!, found[2] ?? ""];
  const limit = scaleDecimal(number, factor(named, unit) ?? [NaN, NaN]);
  return Number.isFinite(limit) ? limit : null;
}

/**
 * A decimal number times a quotient, rounded once if that is a power of ten: 700 ms is 0.7 s, the
 * bound of a bucket, and not 0.7000000000000001 s, which is inside the next one.
 */
function scaleDecimal(text: string, [by, divisor]: readonly [number, number]): number {
  const exponent = Math.round(Math.log10(by / divisor));
  const isPower = Math.abs(by / divisor / 10 ** exponent - 1) < 1e-9;
  if (!isPower) return (Number(text) * by) / divisor;
  const [digits, own] = text.toLowerCase().split("e");
  return Number(`${digits}e${Number(own ?? 0) + exponent}`);
}

/** A threshold, which needs a unit if the values have one: `0.25` may be seconds or ms. */
export function parseThreshold(text: string, unit: string): number | null {
  return isNumber(text) && unit !== "" && Number(text) !== 0 ? null : parseValue(text, unit);
}

/** Whether a text is a number without a unit. */
export function isNumber(text: string): boolean {
  return text.trim() !== "" && Number.isFinite(Number(text));
}

/** Units in which a value may be meant, that of the series first. */
export function unitsOf(unit: string): string[] {
  const times = ["s", "ms", "us"];
  if (!(unit in NANOSECONDS)) return [unit];
  // Few thresholds are meant in nanoseconds, though values of programs are.
  return times.includes(unit)
    ? [unit, ...times.filter((name) => name !== unit)]
    : ["ms", "s", "us", unit];
}

/** The quotient of a named unit and `unit`. */
function factor(named: string, unit: string): readonly [number, number] | null {
  if (named === "" || named === unit) return [1, 1];
  if (named === "%" && unit === SHARE_UNIT) return [1, 100];
  if (named === "%" && PERCENT_UNITS.includes(unit)) return [1, 1];
  const [from, to] = [NANOSECONDS[named], NANOSECONDS[unit]];
  if (from !== undefined && to !== undefined) return [from, to];
  const prefix = PREFIXES.find(([, prefix]) => named === prefix + unit);
  return prefix ? [prefix[0], 1] : null;
}

function digits(number: number): string {
  const size = Math.abs(number);
  // Small and huge numbers have three digits too.
  if ((size > 0 && size < 0.995) || size >= 1e6) return String(Number(number.toPrecision(3)));
  const text = number.toFixed(size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : 2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
