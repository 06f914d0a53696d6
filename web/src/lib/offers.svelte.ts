/** Offers for a field that is written in: which there are, which is chosen, and what keys do with them. */

import { tick } from "svelte";

import { isAborted } from "./api";
import { complete, Known, type Offer } from "./complete";
import type { Written } from "./spot";

type Field = HTMLInputElement | HTMLTextAreaElement;

export class Offers {
  list = $state.raw<Offer[]>([]);
  /** Which of them is chosen by keys; none, if -1. */
  chosen = $state(-1);
  private open = $state(false);
  private readonly known = new Known();
  private controller: AbortController | null = null;

  /** `taken` is told what stands in the field when an offer was taken, and whether nothing has to follow. */
  constructor(
    readonly id: string,
    private readonly field: () => Field | null,
    private readonly language: () => Written,
    private readonly kinds: (() => readonly string[]) | null,
    private readonly taken: (text: string, isWhole: boolean) => void,
  ) {}

  get isOpen(): boolean {
    return this.open && this.list.length > 0;
  }

  /** The element that is chosen, for those who hear the page. */
  get active(): string | undefined {
    return this.isOpen && this.chosen >= 0 ? this.idOf(this.chosen) : undefined;
  }

  idOf(at: number): string {
    return `${this.id}-${at}`;
  }

  async show(): Promise<void> {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    const field = this.field();
    if (!field) return;
    const [text, caret, language] = [
      field.value,
      field.selectionStart ?? field.value.length,
      this.language(),
    ];
    const asking = { text, caret, language, known: this.known, signal };
    try {
      const found = await complete(this.kinds ? { ...asking, kinds: this.kinds() } : asking);
      if (signal.aborted) return;
      // What is written already needs no offer.
      const list = found.filter((one) => one.text !== text);
      [this.list, this.chosen, this.open] = [list, -1, true];
    } catch (error) {
      // Without offers one can still write.
      if (!isAborted(error)) this.open = false;
    }
  }

  hide(): void {
    this.controller?.abort();
    this.open = false;
  }

  take(offer: Offer): void {
    this.hide();
    this.taken(offer.text, !offer.goesOn);
    // The text stands in the field only after the page was brought up to date. A frame later it may have been written on.
    void tick().then(() => {
      const field = this.field();
      if (!field) return;
      field.focus();
      field.setSelectionRange(offer.caret, offer.caret);
      if (offer.goesOn) void this.show();
    });
  }

  /** Whether the key was for the offers. */
  key(event: KeyboardEvent): boolean {
    const size = this.list.length;
    // These keys are for the writing of a character.
    if (!this.isOpen || event.isComposing) return false;
    if (event.key === "ArrowDown") this.chosen = (this.chosen + 1) % size;
    else if (event.key === "ArrowUp") this.chosen = (this.chosen <= 0 ? size : this.chosen) - 1;
    else if (event.key === "Escape") this.hide();
    else if ((event.key === "Enter" || event.key === "Tab") && this.list[this.chosen])
      this.take(this.list[this.chosen]!);
    else return false;
    event.preventDefault();
    return true;
  }
}
