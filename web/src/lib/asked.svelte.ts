/** An answer that is waited for: what was there before stays until the next is there, and only the last question counts. */

import { isAborted, Refused } from "./api";

export class Asked<T> {
  /** Answers are replaced, never changed: nothing has to watch what is inside. */
  value = $state.raw<T | null>(null);
  refused = $state.raw<Refused | null>(null);
  waiting = $state(false);
  /** Since when it is waited for, so that a short wait shows nothing. */
  slow = $state(false);
  private controller: AbortController | null = null;

  /** To be made where a component begins: when it ends, nobody waits any more. */
  constructor() {
    $effect(() => () => this.stop());
  }

  async ask(question: (signal: AbortSignal) => Promise<T>): Promise<void> {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    this.waiting = true;
    const timer = setTimeout(() => (this.slow = true), 300);
    try {
      const value = await question(controller.signal);
      if (this.controller !== controller) return;
      this.value = value;
      this.refused = null;
    } catch (error) {
      if (this.controller !== controller || isAborted(error)) return;
      this.refused = error instanceof Refused ? error : new Refused(400, error instanceof Error ? error.message : String(error));
    } finally {
      clearTimeout(timer);
      if (this.controller === controller) [this.waiting, this.slow] = [false, false];
    }
  }

  /**
   * Asks every so often as long as somebody looks, and at once when somebody looks again. What is still waited for is not asked
   * anew: a server that needs longer would never be done. Gives what ends it.
   */
  every(ms: number, ask: () => void): () => void {
    let asked = Date.now();
    const look = () => {
      if (document.hidden || this.waiting || Date.now() - asked < ms * 0.9) return;
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

  stop(): void {
    this.controller?.abort();
    this.controller = null;
    [this.waiting, this.slow] = [false, false];
  }
}
