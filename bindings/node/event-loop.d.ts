/**
 * Records how much later than due a timer of the event loop runs, in ns. While the loop is blocked,
 * a value is recorded for each interval. Returns a function that stops it.
 */
export function recordEventLoopDelay(options?: {
  /** Interval of the timer in ms, by default 10. */
  intervalMs?: number;
  /** Name of the histogram. */
  name?: string;
}): () => void;
