/** Times and ranges. A time is in milliseconds since 1970. */

/** A range in the syntax of the API: `-6h`, `now`, or `2026-11-22T05:00:00.000Z`. */
export interface TimeRange {
  from: string;
  to: string;
}

const UNITS: Record<string, number> = {
  s: 1e3,
  m: 60e3,
  min: 60e3,
  h: 3_600e3,
  d: 86_400e3,
  w: 604_800e3,
};
/** The server counts nanoseconds in 64 bits: from 1677 to 2262. */
const MAX_MS = 9.2e12;

/** Parses a time of the web UI, a subset of the server's syntax; null if it is invalid. */
export function parseTime(text: string, now: number): number | null {
  const time = parseUnbounded(text.trim(), now);
  return Math.abs(time) <= MAX_MS ? time : null;
}

function parseUnbounded(text: string, now: number): number {
  if (text === "now") return now;
  if (/^-(\d+\s*(min|[smhdw])\s*)+$/.test(text)) {
    const parts = [...text.matchAll(/(\d+)\s*(min|[smhdw])/g)];
    return parts.reduce((at, [, number, unit]) => at - Number(number) * UNITS[unit!]!, now);
  }
  const relative = /^-(\d+\.?\d*)\s*(s|m|min|h|d|w)$/.exec(text);
  if (relative) return now - Number(relative[1]) * UNITS[relative[2]!]!;
  // Date.parse accepts more, and takes a time without an offset as local; the server's is UTC.
  const date =
    /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[-+]\d\d:\d\d)?)?$/i.exec(text);
  return date ? Date.parse(`${date[1]}T${date[2] ?? "00:00"}${date[3] ?? "Z"}`) : NaN;
}

/** Remedy in error messages. */
export const EXPECTED = "use times such as -6h, now or 2026-11-22T05:00Z, the earlier first";

/** Length of the range of an instant: no value has the length 0. */
const INSTANT = 60e3;

/**
 * Both ends in milliseconds; null if one is invalid or they are not in order. An instant, which
 * has equal ends, is the minute before it.
 */
export function resolveRange(range: TimeRange, now: number): [number, number] | null {
  const [from, to] = [parseTime(range.from, now), parseTime(range.to, now)];
  if (from === null || to === null || from > to) return null;
  return [from === to ? to - INSTANT : from, to];
}

/** Like `resolveRange`, but throws an error. */
export function requireRange(range: TimeRange, now: number): [number, number] {
  const resolved = resolveRange(range, now);
  if (resolved) return resolved;
  const [from, to] = [range.from.slice(0, 40), range.to.slice(0, 40)];
  const isParsed = [range.from, range.to].every((text) => parseTime(text, now) !== null);
  const cause = isParsed ? "it ends before it starts" : "not a valid range";
  throw new Error(`cannot use the range "${from}" to "${to}": ${cause}; ${EXPECTED}`);
}

/** Shifts by a fraction of the length; a negative one is backwards. */
export function shiftRange([from, to]: readonly [number, number], by: number): TimeRange {
  const distance = (to - from) * by;
  return rangeBetween(from + distance, to + distance);
}

/** Doubles the length, but not into the future, unless the range ends there already. */
export function zoomOut([from, to]: readonly [number, number], now: number): TimeRange {
  const more = (to - from) / 2;
  return rangeBetween(from - more, Math.max(Math.min(to + more, now), to));
}

/** The middle half. */
export function zoomIn([from, to]: readonly [number, number]): TimeRange {
  const less = (to - from) / 4;
  return rangeBetween(from + less, to - less);
}

/** A range between two times, to the millisecond. */
export function rangeBetween(from: number, to: number): TimeRange {
  const bounded = (ms: number) => Math.min(Math.max(ms, -MAX_MS), MAX_MS);
  return { from: formatIso(bounded(Math.floor(from))), to: formatIso(bounded(Math.ceil(to))) };
}

/** The shortest ISO 8601 form: `2026-11-22T05:00Z`. */
export function formatIso(ms: number): string {
  return new Date(ms).toISOString().replace(/(:00)?\.000Z$/, "Z");
}

/** A time as the user typed it, in its shortest form. */
export function shortenTime(text: string): string {
  return /^\d{4}-.*Z$/.test(text) && !Number.isNaN(Date.parse(text))
    ? formatIso(Date.parse(text))
    : text;
}

/** Whether the range moves with the clock. */
export function isLive(range: TimeRange): boolean {
  return range.to === "now";
}

/**
 * A tick's label in local time. On long ranges it is the date; a tick within the day has its time
 * too, or two labels would be equal.
 */
export function formatTick(ms: number, span: number): string {
  const at = new Date(ms);
  const two = (n: number) => String(n).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const minute = `${two(at.getHours())}:${two(at.getMinutes())}`;
  const isMidnight = minute === "00:00" && at.getSeconds() === 0;
  // Of another year it would be ambiguous.
  const date = span > 300 * UNITS["d"]! ? day : day.slice(5);
  if (span > 4 * UNITS["d"]! && isMidnight) return date;
  if (span > UNITS["d"]!) return `${date} ${minute}`;
  if (span > 10 * UNITS["m"]!) return minute;
  const second = `${minute}:${two(at.getSeconds())}`;
  return span > 10e3 ? second : `${second}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/**
 * Labels of the ticks of an axis. Within a day they have the time only, but the first one and the
 * first one of another day have the date too, unless all are of today: `14:00` alone may be of any
 * day, and of two days on an axis of 24 hours.
 */
export function formatTicks(ticks: readonly number[], span: number, now = Date.now()): string[] {
  const day = (ms: number) => formatDateTime(ms).slice(5, 10);
  const isToday = ticks.every(
    (at) => formatDateTime(at).slice(0, 10) === formatDateTime(now).slice(0, 10),
  );
  return ticks.map((at, index) => {
    const text = formatTick(at, span);
    const before = ticks[index - 1];
    const isSameDay = before !== undefined && day(before) === day(at);
    return isToday || isSameDay || span > UNITS["d"]! ? text : `${day(at)} ${text}`;
  });
}

/** Round times for an axis with their labels. */
export function labelledTicks(
  from: number,
  to: number,
  max: number,
): { at: number; text: string }[] {
  const ticks = timeTicks(from, to, max);
  const texts = formatTicks(ticks, to - from);
  return ticks.map((at, index) => ({ at, text: texts[index] ?? "" }));
}

/** A time of the day, with the date if that is not today. */
export function formatTimeToday(ms: number, span: number, now = Date.now()): string {
  return formatTicks([ms], span, now)[0] ?? "";
}

/** Date and time in local time. */
export function formatDateTime(ms: number): string {
  const at = new Date(ms);
  const two = (n: number) => String(n).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

const TEXT_UNITS = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
] as const;

/**
 * A duration, the only format of durations in texts: `10 s`, `5 min`, `1 h 30 min`. From a second
 * on, in the largest unit and the next smaller one.
 */
export function formatDuration(ms: number): string {
  if (ms === 0) return "0 s";
  if (ms < 1e3) return `${Number(ms.toPrecision(3))} ms`;
  const seconds = Math.round(ms / 1e3);
  const first = TEXT_UNITS.findIndex(([size]) => seconds >= size);
  let rest = seconds;
  const parts = TEXT_UNITS.slice(first, first + 2).map(([size, name]) => {
    const whole = Math.floor(rest / size);
    rest -= whole * size;
    return whole > 0 ? `${whole} ${name}` : "";
  });
  return parts.join(" ").trim();
}

const STEPS = [
  1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1_800e3, 3_600e3, 7_200e3,
  10_800e3, 21_600e3, 43_200e3, 86_400e3,
];
/** Interval of most series: shorter columns would show as stripes. */
const INTERVAL = 10e3;

/** A round column length of at least `interval`, for at most `max` columns. */
export function columnStep(span: number, max: number, interval = 0): number {
  const least = Math.max(span >= 60 * INTERVAL ? INTERVAL : 0, interval);
  const day = 86_400e3;
  return (
    STEPS.find((step) => step >= least && span / step <= max) ?? Math.ceil(span / day / max) * day
  );
}

/**
 * The step of a fixed range: a finer one than that of a live range, if the latter would extend the
 * range. Counts beside a heatmap are then of the same range as the heatmap.
 */
export function fixedColumnStep(from: number, to: number, max: number, interval = 0): number {
  const step = columnStep(to - from, max, interval);
  const fits = (one: number) =>
    one >= interval && one <= step && (to - from) / one <= FINER * max && isAligned(one);
  const isAligned = (one: number) => from % one === 0 && to % one === 0;
  return STEPS.filter(fits).at(-1) ?? step;
}

/** The step of what the page shows of a range: heatmaps and queries have the same columns. */
export function rangeStep(
  range: TimeRange,
  [from, to]: [number, number],
  max: number,
  interval = 0,
): number {
  return isLive(range)
    ? columnStep(to - from, max, interval)
    : fixedColumnStep(from, to, max, interval);
}

/** How many times as many columns a fixed range may have. */
const FINER = 4;

/** Extends a range to whole steps, so that a later request has the same columns. */
export function alignRange(from: number, to: number, step: number): [number, number] {
  return [Math.floor(from / step) * step, Math.ceil(to / step) * step];
}

/**
 * As `alignRange`, for a query that is evaluated at each step: not after now, when the newest
 * values of its range have not arrived yet, so that a rate would fall.
 */
export function alignQueryRange(
  from: number,
  to: number,
  step: number,
  now: number,
): [number, number] {
  const [start, end] = alignRange(from, to, step);
  return [start, end > now ? Math.max(end - step, start) : end];
}

/** Round times for an axis, at most about `max`. */
export function timeTicks(from: number, to: number, max: number): number[] {
  const steps = [
    1, 5, 10, 50, 100, 500, 1e3, 5e3, 10e3, 30e3, 60e3, 300e3, 600e3, 1800e3, 3600e3, 10_800e3,
    21_600e3, 43_200e3,
  ];
  const day = 86_400e3;
  const step =
    steps.find((step) => (to - from) / step <= max) ??
    Math.max(1, Math.ceil((to - from) / day / Math.max(max, 1))) * day;
  // Midnight is local, and the UTC offset may change within the range.
  const offset = (ms: number) => new Date(ms).getTimezoneOffset() * 60e3;
  const times: number[] = [];
  for (
    let at = Math.ceil((from - offset(from)) / step) * step;
    at <= to - offset(to) + 3_600e3;
    at += step
  ) {
    // Steps below an hour are not affected by the change.
    const tick = at + (step < 3_600e3 ? offset(from) : offset(at + offset(at)));
    if (tick >= from && tick <= to) times.push(tick);
  }
  return times;
}

/** The last quarter of a range, live if the range is; null if it is invalid or too short. */
export function lastQuarter(range: TimeRange, now: number): TimeRange | null {
  const resolved = resolveRange(range, now);
  if (!resolved) return null;
  const [start, end] = resolved;
  const part = (end - start) / 4;
  if (part < 1e3) return null;
  return isLive(range)
    ? { from: `-${Math.round(part / 1e3)}s`, to: "now" }
    : rangeBetween(end - part, end);
}

/** The local UTC offset: `UTC+1`. */
export function zoneName(ms: number): string {
  const minutes = -new Date(ms).getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "−" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}`;
}
