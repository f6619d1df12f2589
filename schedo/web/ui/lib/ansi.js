// Colours of terminals. A text becomes lines of {text, style}; style is a string of class names from the lists
// here, so nothing of the text ever gets into markup. Every other sequence of a terminal is left out.
import { SEQUENCE, reveal } from './legible.js';

const NAMES = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
const ON = { 1: 'bold', 2: 'dim', 3: 'italic', 4: 'underline', 7: 'inverse', 9: 'strike' };
const OFF = { 22: ['bold', 'dim'], 23: ['italic'], 24: ['underline'], 27: ['inverse'], 29: ['strike'] };

const nearest = (r, g, b) => NAMES[(r > 127 ? 1 : 0) + (g > 127 ? 2 : 0) + (b > 127 ? 4 : 0)];

// The name for a colour of the palette of 256: eight, eight bright ones, a cube of 6 × 6 × 6, 24 greys.
function inPalette(number) {
  if (number < 16) return NAMES[number % 8];
  if (number > 231) return number < 244 ? 'black' : 'white';
  const at = number - 16;
  return nearest(Math.floor(at / 36) * 51, Math.floor((at % 36) / 6) * 51, (at % 6) * 51);
}

// Read the colour after 38 or 48; return it and how many codes it took.
function extended(codes) {
  if (codes[0] === 5) return [inPalette(codes[1] & 255), 2];
  if (codes[0] === 2) return [nearest(codes[1], codes[2], codes[3]), 4];
  return [null, 0];
}

// Apply the codes of one sequence to the styles: {front, back, set}.
function apply(state, codes) {
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) Object.assign(state, { front: null, back: null, set: new Set() });
    else if (ON[code]) state.set.add(ON[code]);
    else if (OFF[code]) for (const each of OFF[code]) state.set.delete(each);
    else if (code === 38 || code === 48) {
      const [name, taken] = extended(codes.slice(at + 1));
      state[code === 38 ? 'front' : 'back'] = name;
      at += taken;
    } else if (code === 39) state.front = null;
    else if (code === 49) state.back = null;
    else if ((code >= 30 && code < 38) || (code >= 90 && code < 98)) state.front = NAMES[code % 10];
    else if ((code >= 40 && code < 48) || (code >= 100 && code < 108)) state.back = NAMES[code % 10];
  }
}

const styleOf = ({ front, back, set }) => [front && `a-${front}`, back && `a-on-${back}`, ...[...set].map((each) => `a-${each}`)]
  .filter(Boolean).join(' ');

// What a terminal shows of a line in which a carriage return begins it anew, as progress bars do.
const last = (line) => {
  const text = line.replace(/\r+$/, '');
  return text.slice(text.lastIndexOf('\r') + 1);
};

// Return the lines of a text, each a list of {text, style}.
export function parseAnsi(text) {
  const state = { front: null, back: null, set: new Set() };
  const all = text.split('\n');
  if (all.at(-1) === '') all.pop();
  return all.map((raw) => {
    const line = last(raw);
    const parts = [];
    let from = 0;
    const add = (to) => { if (to > from) parts.push({ text: reveal(line.slice(from, to)), style: styleOf(state) }); };
    for (const found of line.matchAll(SEQUENCE)) {
      add(found.index);
      from = found.index + found[0].length;
      if (found[1] !== undefined) apply(state, found[1].split(/[;:]/).map(Number));
    }
    add(line.length);
    return parts;
  });
}
