/**
 * What time it is for the server. A browser's clock may be wrong by hours: "the last hour" would be another one, of which there is
 * nothing. Each answer says when it was made, to the second; where the browser's clock does not fit into that, the server is right.
 */

/** Milliseconds that the browser's clock may be off before it counts: nobody sees it, and the network takes some. */
const SLACK = 2_000;

class Clock {
  /** Milliseconds that this browser is ahead of the server. What asks about a time that ends now is asked anew when it changes. */
  private ahead = $state(0);

  now(): number {
    return Date.now() - this.ahead;
  }

  /** An answer of that date, to what was asked and answered at these moments of the browser. */
  heard(date: string | null, asked: number, answered: number): void {
    const made = Date.parse(date ?? "");
    if (Number.isNaN(made)) return;
    // It was made after it was asked for, in the second of its date, before it came.
    const [least, most] = [asked - made - 1_000, answered - made];
    if (this.ahead < least - SLACK) this.ahead = least;
    else if (this.ahead > most + SLACK) this.ahead = most;
  }
}

export const clock = new Clock();
