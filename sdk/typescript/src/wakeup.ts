/** A pause that another part of the program can end. */
export class Wakeup {
  #wakers = new Set<() => void>();

  /** Wait for so many milliseconds, or until wake() finds that `isDone`. */
  async wait(ms: number, isDone: () => boolean): Promise<void> {
    if (isDone()) return;
    await new Promise<void>((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#wakers.delete(check);
        resolve();
      };
      const check = (): void => {
        if (isDone()) end();
      };
      const timer = setTimeout(end, ms);
      this.#wakers.add(check);
    });
  }

  /** Let the pauses that are over end now. */
  wake(): void {
    for (const check of [...this.#wakers]) check();
  }
}
