/**
 * The server's clock. A browser's clock may be wrong by hours; "the last hour" would then be a
 * range without data. Each response has a `Date` header with a resolution of 1 s. Where the
 * browser's clock contradicts it, the server is right.
 */

/** Difference that is tolerated, in milliseconds: invisible, and within network latency. */
const SLACK = 2_000;

class ServerClock {
  /** Milliseconds that this browser is ahead. Requests for ranges that end now depend on it. */
  private ahead = $state(0);

  now(): number {
    return Date.now() - this.ahead;
  }

  /** Takes a response's date; `sentAt` and `receivedAt` are by the browser's clock. */
  synchronize(date: string | null, sentAt: number, receivedAt: number): void {
    const respondedAt = Date.parse(date ?? "");
    if (Number.isNaN(respondedAt)) return;
    // The response was made after the request was sent, within the second of its date.
    const [least, most] = [sentAt - respondedAt - 1_000, receivedAt - respondedAt];
    if (this.ahead < least - SLACK) this.ahead = least;
    else if (this.ahead > most + SLACK) this.ahead = most;
  }
}

export const serverClock = new ServerClock();
