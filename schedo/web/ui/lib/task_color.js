// The colour of a task: the same in all pictures and after each reload.
const COLORS = 8; // --task1 to --task8

export function taskColor(name) {
  let sum = 7;
  for (const character of name) sum = (sum * 31 + character.codePointAt(0)) >>> 0;
  return `var(--task${(sum % COLORS) + 1})`;
}
