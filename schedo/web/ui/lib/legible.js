// Texts of others, without what a terminal would do; what would hide or turn text is an escape.

// Colours (CSI … m); then what is left out: other CSI, OSC with its end, short ones, control characters.
export const SEQUENCE = /\x1b\[([\d;:]*)m|\x1b\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)|\x1b[\x20-\x2f]*[\x30-\x7e]?|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]/g;

// Characters of no width, and controls of direction.
const HIDDEN = /[\u200b\u2060\u2066-\u2069\u202a-\u202e\ufeff]/g;

export const reveal = (text) => text.replace(HIDDEN, (each) => `\\u${each.charCodeAt(0).toString(16)}`);

export const legible = (text) => reveal(text.replace(SEQUENCE, ''));
