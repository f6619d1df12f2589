// What every module needs: markup, hooks and signals of the vendored libraries, and the base address.
import { h, render, Fragment } from '../vendor/preact.js';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/hooks.js';
import { batch, computed, effect, signal, useComputed, useSignal } from '../vendor/signals.js';
import htm from '../vendor/htm.js';

export const html = htm.bind(h);
export {
  Fragment, batch, computed, effect, render, signal, useComputed, useEffect, useLayoutEffect, useMemo, useRef,
  useSignal, useState,
};

// The path of the page's address: "/", or the prefix of --public-url with a slash behind it.
export const base = new URL(document.baseURI).pathname;

// Set styles by the object model, because the content security policy forbids style attributes.
export const styled = (styles) => (element) => {
  if (!element) return;
  for (const [name, value] of Object.entries(styles)) element.style.setProperty(name, value);
};
