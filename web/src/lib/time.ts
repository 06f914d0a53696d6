/** Times and stretches of time. Moments are milliseconds since 1970. */

/** A stretch as it is asked about: each end is a moment the API understands: `-6h`, `now`, or `2026-11-22T05:00:00.000Z`. */
export interface Range {
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
const MOST = 9.2e12;

/** A moment in milliseconds; null if it is none. What is one here is the same one for the server. */
export function moment(text: string, now: number): number | null {
  const found = unbounded(text.trim(), now);
  return Math.abs(found) <= MOST ? found : null;
}

function unbounded(text: string, now: number): number {
  if (text === "now") return now;
  if (/^-(\d+[smhdw])+$/.test(text)) {
    const parts = [...text.matchAll(/(\d+)(\w)/g)];
    return parts.reduce((at, [, number, unit]) => at - Number(number) * UNITS[unit!]!, now);
  }
  const relative = /^-(\d+\.?\d*)\s*(s|m|min|h|d|w)$/.exec(text);
  if (relative) return now - Number(relative[1]) * UNITS[relative[2]!]!;
  // Browsers take very much for a date, and one without an offset for one of the reader's; the server for one of UTC.
  const date =
    /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[-+]\d\d:\d\d)?)?$/i.exec(text);
  return date ? Date.parse(`${date[1]}T${date[2] ?? "00:00"}${date[3] ?? "Z"}`) : NaN;
}

/** What moments may be, for those who wrote something else. */
export const EXPECTED = "expected moments such as -6h, now or 2026-11-22T05:00Z, the earlier first";

/** Both ends in milliseconds; null if one is no moment or they are not in order. */
export function resolved(range: Range, now: number): [number, number] | null {
  const [from, to] = [moment(range.from, now), moment(range.to, now)];
  return from !== null && to !== null && from < to ? [from, to] : null;
}

/** The same, for questions: they are refused. */
export function stretch(range: Range, now: number): [number, number] {
  const found = resolved(range, now);
  if (!found)
    throw new Error(
      `the time from "${range.from.slice(0, 40)}" to "${range.to.slice(0, 40)}": ${EXPECTED}`,
    );
  return found;
}

/** Shifted by a share of its length: backwards below zero. */
export function shifted([from, to]: readonly [number, number], by: number): Range {
  const way = (to - from) * by;
  return between(from + way, to + way);
}

/** Twice as long, but not into the future; unless it is there already. */
export function wider([from, to]: readonly [number, number], now: number): Range {
  const more = (to - from) / 2;
  return between(from - more, Math.max(Math.min(to + more, now), to));
}

/** The middle half of it. */
export function narrower([from, to]: readonly [number, number]): Range {
  const less = (to - from) / 4;
  return between(from + less, to - less);
}

/** A stretch between two moments, to the millisecond. */
export function between(from: number, to: number): Range {
  const bounded = (ms: number) => Math.min(Math.max(ms, -MOST), MOST);
  return { from: written(bounded(Math.floor(from))), to: written(bounded(Math.ceil(to))) };
}

/** A moment as short as it can be said: `2026-11-22T05:00Z`. */
export function written(ms: number): string {
  return new Date(ms).toISOString().replace(/(:00)?\.000Z$/, "Z");
}

/** A moment as somebody wrote it, shorter where that says the same. */
export function short(text: string): string {
  return /^\d{4}-.*Z$/.test(text) && !Number.isNaN(Date.parse(text))
    ? written(Date.parse(text))
    : text;
}

/** Whether it moves on with the clock. */
export function isLive(range: Range): boolean {
  return range.to === "now";
}

/** A moment as its neighbours make it readable: the date only where the day changes or the stretch is long. */
export function clock(ms: number, span: number): string {
  const at = new Date(ms);
  const two = (n: number) => String(n).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const minute = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (span > 4 * UNITS["d"]!) return day.slice(5);
  if (span > UNITS["d"]!) return `${day.slice(5)} ${minute}`;
  if (span > 10 * UNITS["m"]!) return minute;
  const second = `${minute}:${two(at.getSeconds())}`;
  return span > 10e3 ? second : `${second}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** A moment in full, in the time of the reader. */
export function full(ms: number): string {
  const at = new Date(ms);
  const two = (n: number) => String(n).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** A length: `10 s`, `5 min`, `1 h 30 min`. */
export function length(ms: number): string {
  if (ms < 1e3) return `${Number(ms.toPrecision(3))} ms`;
  const parts: string[] = [];
  let rest = Math.round(ms / 1e3);
  for (const [size, name] of [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ] as const) {
    const whole = Math.floor(rest / size);
    if (whole > 0) parts.push(`${whole} ${name}`);
    rest -= whole * size;
  }
  return parts.slice(0, 2).join(" ");
}

const STEPS = [
  1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1_800e3, 3_600e3, 7_200e3,
  10_800e3, 21_600e3, 43_200e3, 86_400e3,
];
/** What most sources put together: shorter columns would be stripes. */
const INTERVAL = 10e3;

/** A round length of columns, at most so many in a stretch of time. */
export function step(span: number, most: number): number {
  const least = span >= 60 * INTERVAL ? INTERVAL : 0;
  const day = 86_400e3;
  return (
    STEPS.find((step) => step >= least && span / step <= most) ?? Math.ceil(span / day / most) * day
  );
}

/** The stretch between whole steps that holds this one: what is asked again later has the same columns. */
export function aligned(from: number, to: number, step: number): [number, number] {
  return [Math.floor(from / step) * step, Math.ceil(to / step) * step];
}

/** Round moments to write below a picture: at most so many. */
export function ticks(from: number, to: number, most: number): number[] {
  const steps = [
    1, 5, 10, 50, 100, 500, 1e3, 5e3, 10e3, 30e3, 60e3, 300e3, 600e3, 1800e3, 3600e3, 10_800e3,
    21_600e3, 43_200e3,
  ];
  const day = 86_400e3;
  const step =
    steps.find((step) => (to - from) / step <= most) ??
    Math.max(1, Math.ceil((to - from) / day / Math.max(most, 1))) * day;
  // Midnight is the reader's, whose clocks may be changed in between.
  const offset = (ms: number) => new Date(ms).getTimezoneOffset() * 60e3;
  const found: number[] = [];
  for (
    let at = Math.ceil((from - offset(from)) / step) * step;
    at <= to - offset(to) + 3_600e3;
    at += step
  ) {
    // Steps of less than an hour are the same on both sides of the change.
    const tick = at + (step < 3_600e3 ? offset(from) : offset(at + offset(at)));
    if (tick >= from && tick <= to) found.push(tick);
  }
  return found;
}

/** The last quarter of a stretch, which goes on if the stretch does; null if it is none. */
export function quarter(range: Range, now: number): Range | null {
  const found = resolved(range, now);
  if (!found) return null;
  const [start, end] = found;
  const part = (end - start) / 4;
  if (part < 1e3) return null;
  return isLive(range)
    ? { from: `-${Math.round(part / 1e3)}s`, to: "now" }
    : between(end - part, end);
}

/** What the reader's clock is called: `UTC+1`. */
export function zone(ms: number): string {
  const minutes = -new Date(ms).getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "−" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}`;
}
