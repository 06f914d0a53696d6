/** An answer that is waited for: what was there before stays until the next is there, and only the last question counts. */

import { isAborted, Refused } from "./api";

/** A shorter wait shows nothing: it would only flicker. */
const SLOW_MS = 150;
/** After this one wants to know since when, and how to end it. */
const LATE_MS = 2_000;

export class Asked<T> {
  /** Answers are replaced, never changed: nothing has to watch what is inside. */
  value = $state.raw<T | null>(null);
  refused = $state.raw<Refused | null>(null);
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

  /** To be made where a component begins: when it ends, nobody waits any more. */
  constructor() {
    $effect(() => () => this.stop());
  }

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
      this.refused =
        error instanceof Refused
          ? error
          : new Refused(400, error instanceof Error ? error.message : String(error));
    } finally {
      clearTimeout(slow);
      clearTimeout(late);
      if (isCurrent()) this.rest();
    }
  }

  /**
   * Asks every so often as long as somebody looks, and at once when somebody looks again; not while somebody has stopped it. What is
   * still waited for is not asked anew: a server that needs longer would never be done. Gives what ends it.
   */
  every(ms: number, ask: () => void): () => void {
    let asked = Date.now();
    const look = () => {
      if (document.hidden || this.waiting || this.stopped || Date.now() - asked < ms * 0.9) return;
      asked = Date.now();
      ask();
    };
    const timer = setInterval(look, ms);
    document.addEventListener("visibilitychange", look);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", look);
    };
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
