// Bodies of requests that a form changes: a value by its path, and what differs between two of them.

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value) && !JSON.isRawJSON?.(value);

// The value at a path such as ['expect', 'within']; undefined if there is none.
export const valueAt = (body, path) => path.reduce((value, key) => value?.[key], body);

// The body with this value; undefined removes it, and an object that becomes empty goes with it.
export function withValue(body, [key, ...rest], value) {
  const inner = rest.length ? withValue(isObject(body?.[key]) ? body[key] : {}, rest, value) : value;
  const changed = { ...body, [key]: inner };
  if (inner === undefined || (rest.length && !Object.keys(inner).length)) delete changed[key];
  return changed;
}

// A text that is the same for equal values, whatever the order of their keys.
const canonical = (value) => JSON.stringify(value, (_, each) => (isObject(each)
  ? Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1))) : each));

export const isSame = (one, other) => canonical(one) === canonical(other);

// [{field, before, after}] of what differs; an object has an entry for each field, such as expect.within.
export function differences(before, after, prefix = '') {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => !isSame(before[name], after[name]))
    .flatMap((name) => (isObject(before[name]) && isObject(after[name])
      ? differences(before[name], after[name], `${prefix}${name}.`)
      : [{ field: prefix + name, before: before[name], after: after[name] }]));
}

export const pointerOf = (path) => path.map((key) => `/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');

// Whether a JSON pointer names this place, or one inside of it.
export const isUnder = (pointer, place) => pointer === place || pointer.startsWith(`${place}/`);

// [{pointer, detail}] of an ApiError; one that names no field has the pointer ''.
export const errorsOf = (error) => (error.problem?.errors?.length
  ? error.problem.errors.map(({ pointer = '', detail }) => ({ pointer, detail }))
  : [{ pointer: error.field ?? '', detail: error.text ?? error.message }]);
