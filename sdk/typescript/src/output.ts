const HALF_CHARACTERS = 131_072; // 512 KiB at most as UTF-8

/** A text that is kept from its beginning and to its end; of a long one the middle is missing. */
export class Output {
  #head = "";
  #tail = "";
  #bytes = 0;

  write(text: string): void {
    this.#bytes += new TextEncoder().encode(text).length;
    const room = HALF_CHARACTERS - this.#head.length;
    this.#head += text.slice(0, room);
    this.#tail = (this.#tail + text.slice(room)).slice(-HALF_CHARACTERS);
  }

  /** The entry for a result; undefined if nothing was written. */
  render(): { stream: "stdout"; text: string; total_bytes: number } | undefined {
    if (this.#bytes === 0) return undefined;
    return { stream: "stdout", text: toSafeText(this.#head + this.#tail), total_bytes: this.#bytes };
  }
}

/** Replace what the server refuses in a text: U+0000 and halves of characters. */
export function toSafeText(text: string): string {
  return text.replace(/\0|\p{Surrogate}/gu, "\ufffd");
}

/** The text of what a program throws or logs, whatever it is: a program in JavaScript has no types that forbid it. */
export function toText(value: unknown): string {
  try {
    return String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}
