// Fields of a form that changes the body of a request. A field is a line of a table:
// {path, label, kind: of KINDS, by default a text; hint, placeholder, list, options, when: (body) => whether it is there}.
// A form is {body, set(path, value), errors: [{pointer, detail}], setMistake(pointer, why the text is no value)}.
import { html, useEffect, useRef, useState } from '../lib/base.js';
import { isSame, isUnder, pointerOf, valueAt } from '../lib/body.js';
import { parseWritten } from '../lib/written.js';

const ROWS = 16; // at most, of a text as it is shown at first
const MOST = 60; // characters of a value in a summary

export const idOf = (pointer) => `field${pointer.replaceAll(/[^\w]/g, '-')}`;

// A label with what it labels, a hint and what the server says about it. input: (attributes) => markup
export function Field({ form, path, label, hint, input, isWide }) {
  const pointer = pointerOf(path);
  const id = idOf(pointer);
  const error = form.errors.find((each) => isUnder(each.pointer, pointer))?.detail;
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ') || undefined;
  return html`<div class=${`field${error ? ' wrong' : ''}${isWide ? ' whole' : ''}`}><label for=${id}>${label}</label>
    ${input({ id, 'aria-describedby': described, 'aria-invalid': error ? 'true' : undefined })}
    ${hint && html`<span class="hint" id=${`${id}-hint`}>${hint}</span>`}${error && html`<span class="mark bad" id=${`${id}-error`} role="alert">${error}</span>`}</div>`;
}

const TEXT = { type: 'text', spellcheck: false, autocomplete: 'off' };

function TextField({ form, field }) {
  const { path, list, placeholder, isMono, isRequired } = field;
  const empty = isRequired ? '' : undefined; // without its value the field of a rule would not be there
  return html`<${Field} form=${form} ...${field} input=${(shared) => html`<input ...${TEXT} ...${shared} class=${isMono ? 'mono' : ''} value=${valueAt(form.body, path) ?? ''} list=${list}
    placeholder=${placeholder} required=${isRequired} onInput=${(event) => form.set(path, event.target.value || empty)}/>`}/>`;
}

function ChoiceField({ form, field }) {
  const value = String(valueAt(form.body, field.path) ?? field.otherwise ?? '');
  const choose = (event) => form.set(field.path, field.values ? field.values[event.target.value] : event.target.value || undefined);
  return html`<${Field} form=${form} ...${field} input=${(shared) => html`<select ...${shared} value=${value} onChange=${choose}>${Object.entries(field.options).map(([name, text]) => html`
    <option value=${name} selected=${name === value}>${text}</option>`)}</select>`}/>`;
}

// A field whose text is not its value: the text stays as it is typed, until another value comes from elsewhere.
function useTyped(value, write) {
  const [typed, setTyped] = useState(null); // {text, value}: what was typed, and what it means
  const text = typed && isSame(typed.value, value) ? typed.text : write(value);
  return [text, (next, meant) => setTyped({ text: next, value: meant })];
}

// What is no number stays a text, and the server says what it wants.
function NumberField({ form, field }) {
  const [text, setText] = useTyped(valueAt(form.body, field.path), (value) => String(value ?? ''));
  const type = (next) => {
    const value = next.trim() && Number.isFinite(Number(next)) ? Number(next) : next || undefined;
    setText(next, value);
    form.set(field.path, value);
  };
  return html`<${Field} form=${form} ...${field} input=${(shared) => html`<input ...${TEXT} ...${shared} inputmode="decimal" value=${text} placeholder=${field.placeholder} onInput=${(event) => type(event.target.value)}/>`}/>`;
}

function ListField({ form, field }) {
  const value = valueAt(form.body, field.path);
  const [text, setText] = useTyped(value, (items) => (items ?? []).join(', '));
  const type = (next) => {
    const items = next.split(/[\s,]+/).filter(Boolean);
    setText(next, items.length ? items : undefined);
    form.set(field.path, items.length ? items : undefined);
  };
  return html`<${Field} form=${form} ...${field} input=${(shared) => html`<input ...${TEXT} ...${shared} value=${text} placeholder=${field.placeholder} onInput=${(event) => type(event.target.value)}/>`}/>`;
}

// JSON: it changes the value when it can be read, else it says why not. change: what to do with a value.
export function JsonField({ form, field, value = valueAt(form.body, field.path), change = (next) => form.set(field.path, next) }) {
  const pointer = pointerOf(field.path);
  const shown = value === undefined && field.otherwise !== undefined ? field.otherwise : value;
  const [text, setText] = useTyped(shown, (known) => (known === undefined ? '' : JSON.stringify(known, null, 2)));
  const isBroken = useRef(null); // the text that cannot be read
  useEffect(() => () => form.setMistake(pointer, null), []); // a field that is gone hinders nothing
  const type = (next) => {
    try {
      const read = next.trim() ? parseWritten(next) : field.otherwise;
      isBroken.current = null;
      setText(next, read);
      form.setMistake(pointer, null);
      change(read);
    } catch (error) {
      isBroken.current = next;
      setText(next, shown);
      form.setMistake(pointer, error.message);
    }
  };
  return html`<${Field} form=${form} ...${field} isWide input=${(shared) => html`<textarea ...${shared} rows=${Math.max(field.rows ?? 3, Math.min(ROWS, (isBroken.current ?? text).split('\n').length))} spellcheck=${false} placeholder=${field.placeholder}
    value=${isBroken.current ?? text} onInput=${(event) => type(event.target.value)}></textarea>`}/>`;
}

export const KINDS = { text: TextField, number: NumberField, choice: ChoiceField, list: ListField, json: JsonField };

// The fields of a table. kinds: those of KINDS and others.
export const Fields = ({ form, fields, kinds = KINDS }) => fields.filter((field) => !field.when || field.when(form.body)).map((field) => html`
  <${kinds[field.kind ?? 'text']} key=${field.path.join('.')} form=${form} field=${field}/>`);

// A value in a few words, for the line that stands for closed fields.
function brief(field, value) {
  if (field.options) return field.options[value] ?? String(value);
  const text = typeof value === 'string' ? value : (value.task ?? (Array.isArray(value) ? value.map((each) => (typeof each === 'string' ? each : JSON.stringify(each))).join(', ') : JSON.stringify(value)));
  return text.length > MOST ? `${text.slice(0, MOST)}…` : text;
}

// What is set of these fields: "Time limit 10m · Tags db, nightly".
export const summarize = (fields, body) => fields.map((field) => [field, valueAt(body, field.path)]).filter(([, value]) => value !== undefined)
  .map(([field, value]) => `${field.label} ${brief(field, value)}`).join(' · ');
