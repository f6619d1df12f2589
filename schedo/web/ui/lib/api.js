// Requests to the API, and the errors that its problem documents tell.
import { base, signal } from './base.js';
import { parseExact } from './exact.js';

// Whether the server asks for a token that this browser has not proved yet.
export const isLoggedOut = signal(false);

// Whether the screen has something typed that would be lost with it: then the login comes above it.
export const isTyped = signal(false);

// An error of a request: what the server says, and the id under which its log has more.
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `the server answered with status ${status}`);
    this.status = status; // 0: no answer
    this.code = problem.code ?? '';
    [this.wrong] = problem.errors ?? []; // the first field that was wrong: {pointer, detail}
    this.requestId = problem.request_id ?? '';
    this.problem = problem;
  }

  // The whole sentence for a person.
  get text() {
    return this.requestId ? `${this.message} (request ${this.requestId})` : this.message;
  }
}

// The address of a path of the API, whatever the prefix of the page.
export function address(path, query) {
  const url = new URL(base + path.replace(/^\//, ''), location.origin);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== '') url.searchParams.set(name, value);
  }
  return url;
}

// Send a request and return the decoded body; throw ApiError.
// options: {query, headers, signal, as: 'json' | 'text' | 'response'}
export async function api(method, path, body, options = {}) {
  const headers = { accept: 'application/json', ...options.headers };
  if (body !== undefined) headers['content-type'] = 'application/json';
  let response;
  try {
    response = await fetch(address(path, options.query), {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: options.signal,
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, { detail: 'the server cannot be reached' });
  }
  if (!response.ok) throw await readProblem(response);
  if (options.as === 'response') return response;
  if (options.as === 'text') return response.text();
  return response.status === 204 ? null : parseExact(await response.text());
}

async function readProblem(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy may answer with something else than a problem document.
  }
  problem.request_id ??= response.headers.get('x-request-id');
  if (response.status === 401) isLoggedOut.value = true;
  return new ApiError(response.status, problem);
}

export const get = (path, options) => api('GET', path, undefined, options);
export const post = (path, body, options) => api('POST', path, body ?? {}, options);

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// The same request as a command line for curl. The token is read from the variable that the clients read, too.
export function asCurl({ method = 'POST', path, body, query }, hasTokens = false) {
  const words = ['curl', quoted(address(path, query).href)];
  if (method !== 'GET' && !(method === 'POST' && body !== undefined)) words.splice(1, 0, '-X', method);
  if (hasTokens) words.push('-H', '"authorization: Bearer $SCHEDO_TOKEN"');
  if (body !== undefined) {
    words.push('-H', quoted('content-type: application/json'), '-d', quoted(JSON.stringify(body)));
  }
  return words.join(' ');
}
