/** Role of a metric; most are relative to another metric, `related`. */
export type Role =
  | 'other' | 'timing' | 'capacity' | 'usage' | 'hit' | 'miss' | 'size' | 'queue' | 'error'
  | 'subcalls';

/** Description of a metric; a string is its name. */
export interface Description {
  /** Name of 1 to 4,096 bytes. */
  name: string;
  /** Unit in UCUM: `ns`, `By`, `1`. */
  unit?: string;
  help?: string;
  labels?: Record<string, string>;
  role?: Role;
  /** Related metric of the role, such as the capacity of a usage. */
  related?: Metric;
}

export abstract class Metric {
  /** Why the metric records nothing, or null. */
  readonly error: string | null;
}

export class Counter extends Metric {
  constructor(description: Description | string);
  /** Adds an integer of at least 0, by default 1. */
  add: (n?: number | bigint) => void;
}

export class UpDownCounter extends Metric {
  constructor(description: Description | string);
  add: (n: number | bigint) => void;
}

export class Gauge extends Metric {
  constructor(description: Description | string);
  /** Sets an integer. */
  set: (value: number | bigint) => void;
}

export class FloatGauge extends Metric {
  constructor(description: Description | string);
  set: (value: number) => void;
}

export class Text extends Metric {
  constructor(description: Description | string);
  /** Sets the text, truncated to 240 bytes; returns whether all of it fit. */
  set: (text: string) => boolean;
}

export class Heartbeat extends Metric {
  constructor(description: Description | string, options?: { everyNs?: number | bigint });
  beat: () => void;
}

export class Histogram extends Metric {
  constructor(description: Description | string);
  /** Records an integer from 0 to 2^64 - 1; times are nanoseconds. Fractions are cut off. */
  record: (value: number | bigint) => void;
  /** Records the nanoseconds since a result of `now`, and returns them. */
  recordSince: (sinceNs: number) => number;
  start(): Timer;
  /** Records the duration of a call; of an asynchronous function, until its promise is settled. */
  time<T>(work: () => T): T;
}

export class Timer {
  private constructor();
  /** Records the time since the start; returns nanoseconds. Only the first call records. */
  stop(): number;
  cancel(): void;
}

export class InFlight extends Metric {
  /** `tags` are the names of up to four tags. */
  constructor(description: Description | string, tags?: string[]);
  /** Starts an operation; tags are results of `tag`, in the order of their names. */
  begin: (number: number | bigint, ...tags: number[]) => Operation;
}

export class Operation {
  private constructor();
  /** Ends the operation; only the first call does. */
  end(): void;
}

/** Interns the value of a tag. Each distinct text takes space in the file for good. */
export function tag(text: string): number;
/** Path of the metrics file of this process; throws the reason if there is none. */
export function path(): string;
/** Nanoseconds since the module was loaded. */
export function now(): number;
