/** An answer that is waited for: what was there before stays until the next is there, and only the last question counts. */

import { isAborted, Refused } from "./api";

export class Asked<T> {
  value = $state<T | null>(null);
  refused = $state<Refused | null>(null);
  waiting = $state(false);
  /** Since when it is waited for, so that a short wait shows nothing. */
  slow = $state(false);
  private controller: AbortController | null = null;

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
      this.refused = error instanceof Refused ? error : new Refused(0, error instanceof Error ? error.message : String(error));
    } finally {
      clearTimeout(timer);
      if (this.controller === controller) [this.waiting, this.slow] = [false, false];
    }
  }

  stop(): void {
    this.controller?.abort();
    this.controller = null;
    [this.waiting, this.slow] = [false, false];
  }
}
