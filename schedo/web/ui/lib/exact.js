// JSON whose integers keep all digits: those beyond 2^53 become JSON.rawJSON, which JSON.stringify writes as it came.

const MAY_BE_LARGE = /\d{16}|\d[eE]/;

const keep = (_, value, { source }) => (typeof value !== 'number' || value % 1 || Number.isSafeInteger(value) ? value : JSON.rawJSON(source));

// A browser without JSON.rawJSON rounds them.
export const parseExact = (text) => (JSON.rawJSON && MAY_BE_LARGE.test(text) ? JSON.parse(text, keep) : JSON.parse(text));
