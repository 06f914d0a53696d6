/** An answer that is waited for: what was there before stays until the next is there, and only the last question counts. */

import { isAborted, Refused } from "./api";

/** A shorter wait shows nothing: it would only flicker. */
const SLOW_MS = 150;
/** After this one wants to know since when, and how to end it. */
const LATE_MS = 2_000;

export class Asked<T> {
  value = $state<T | null>(null);
  refused = $state<Refused | null>(null);
  waiting = $state(false);
  /** It takes long enough to be said. */
  slow = $state(false);
  /** Since when it is waited for, if that is long. */
  late = $state<number | null>(null);
  /** Somebody stopped waiting for it. */
  stopped = $state(false);
  /** When the last answer came, in milliseconds. */
  answered = $state<number | null>(null);
  private controller: AbortController | null = null;

  async ask(question: (signal: AbortSignal) => Promise<T>): Promise<void> {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    const begun = Date.now();
    [this.waiting, this.slow, this.late, this.stopped] = [true, false, null, false];
    const isCurrent = () => this.controller === controller;
    const slow = setTimeout(() => isCurrent() && (this.slow = true), SLOW_MS);
    const late = setTimeout(() => isCurrent() && (this.late = begun), LATE_MS);
    try {
      const value = await question(controller.signal);
      if (!isCurrent()) return;
      this.value = value;
      this.refused = null;
      this.answered = Date.now();
    } catch (error) {
      if (!isCurrent() || isAborted(error)) return;
      this.refused = error instanceof Refused ? error : new Refused(0, error instanceof Error ? error.message : String(error));
    } finally {
      clearTimeout(slow);
      clearTimeout(late);
      if (isCurrent()) this.rest();
    }
  }

  /** What it was is of no interest any more. */
  stop(): void {
    this.controller?.abort();
    this.controller = null;
    this.rest();
  }

  /** Somebody has waited long enough. */
  giveUp(): void {
    this.stop();
    this.stopped = true;
  }

  private rest(): void {
    [this.waiting, this.slow, this.late] = [false, false, null];
  }
}
