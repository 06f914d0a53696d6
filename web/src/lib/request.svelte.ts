/**
 * A request whose previous result stays visible until the next one arrives. A new request aborts
 * the one in flight, so that results never arrive out of order.
 */

import { ApiError, isAborted } from "./api";

/** A shorter wait is not shown: the page would only flicker. */
const SLOW_MS = 150;
/** From here on the page shows since when it waits, and a button that cancels. */
const LATE_MS = 2_000;

export class ServerRequest<T> {
  /** Results are replaced, never mutated: no deep reactivity is needed. */
  value = $state.raw<T | null>(null);
  error = $state.raw<ApiError | null>(null);
  isPending = $state(false);
  /** Pending for longer than `SLOW_MS`. */
  isSlow = $state(false);
  /** When the pending request was sent, once it is pending for longer than `LATE_MS`. */
  lateSince = $state<number | null>(null);
  /** Cancelled by the user. */
  isCancelled = $state(false);
  /** When the last result arrived, in milliseconds. */
  receivedAt = $state<number | null>(null);
  private controller: AbortController | null = null;

  /** Must be called while a component initialises: its end aborts the request. */
  constructor() {
    $effect(() => () => this.abort());
  }

  /** `waitMs`: for how long the server may delay its response, which is not late until then. */
  async run(fetchResult: (signal: AbortSignal) => Promise<T>, waitMs = 0): Promise<void> {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    const sentAt = Date.now();
    [this.isPending, this.isSlow, this.lateSince, this.isCancelled] = [true, false, null, false];
    const isCurrent = () => this.controller === controller;
    const slow = setTimeout(() => isCurrent() && (this.isSlow = true), waitMs + SLOW_MS);
    const late = setTimeout(() => isCurrent() && (this.lateSince = sentAt), waitMs + LATE_MS);
    try {
      const value = await fetchResult(controller.signal);
      if (!isCurrent()) return;
      this.value = value;
      this.error = null;
      this.receivedAt = Date.now();
    } catch (error) {
      if (!isCurrent() || isAborted(error)) return;
      this.error =
        error instanceof ApiError
          ? error
          : new ApiError(400, error instanceof Error ? error.message : String(error));
    } finally {
      clearTimeout(slow);
      clearTimeout(late);
      if (isCurrent()) this.clearPending();
    }
  }

  /**
   * Calls `send` every `ms` milliseconds while the page is visible, and at once when it becomes
   * visible again. A cancelled request is not repeated, and neither is a pending one: a server
   * that needs longer than `ms` would never finish. Returns a function that ends the repetition.
   */
  repeat(ms: number, send: () => void): () => void {
    let sentAt = Date.now();
    const tick = () => {
      const isEarly = Date.now() - sentAt < ms * 0.9;
      if (document.hidden || this.isPending || this.isCancelled || isEarly) return;
      sentAt = Date.now();
      send();
    };
    const timer = setInterval(tick, ms);
    document.addEventListener("visibilitychange", tick);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", tick);
    };
  }

  /** Aborts the request in flight: its result is no longer needed. */
  abort(): void {
    this.controller?.abort();
    this.controller = null;
    this.clearPending();
  }

  /** Aborts on behalf of the user, which the page shows. */
  cancel(): void {
    this.abort();
    this.isCancelled = true;
  }

  private clearPending(): void {
    [this.isPending, this.isSlow, this.lateSince] = [false, false, null];
  }
}
