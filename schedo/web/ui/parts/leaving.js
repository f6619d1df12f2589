// The question before a screen is left on which something is typed that is not saved.
import { useLayoutEffect } from '../lib/base.js';
import { guard } from '../lib/router.js';
import { confirm } from './dialog.js';

const stay = (event) => event.preventDefault();

// Ask before the user leaves the screen, by a link, a key or a step back; the browser itself asks before it closes the tab.
// isSaving: what is typed is on its way, so only the tab has to wait for it.
export function useLeaving({ isTyped, isSaving, what }) {
  useLayoutEffect(() => {
    if (!isTyped) return undefined;
    addEventListener('beforeunload', stay);
    return () => removeEventListener('beforeunload', stay);
  }, [isTyped]);
  useLayoutEffect(() => {
    if (!isTyped || isSaving) return undefined;
    let isAsked = false;
    guard(async (move) => {
      if (isAsked) return;
      isAsked = true;
      const isSure = await confirm({ title: 'Leave without saving?', text: `${what} would be lost.`, verb: 'Leave', no: 'Stay', danger: true });
      isAsked = false;
      if (!isSure) return;
      guard(null);
      move();
    });
    return () => guard(null);
  }, [isTyped, isSaving]);
}
