// Reading lists of jobs.
import { get } from './api.js';

const REQUESTS_MAX = 8; // of up to 25 ms each: a screen shows its first data within 300

// A page of GET /v1/jobs of query.limit jobs. The server ends a page after 50,000 jobs that it has looked at, found or not:
// until the page is full, the search goes on for a few requests. looked_at is of the whole search.
export async function listJobs(query) {
  let page = await get('/v1/jobs', { query });
  const items = page.items;
  let looked = page.looked_at ?? 0;
  for (let sent = 1; page.partial && items.length < query.limit && sent < REQUESTS_MAX; sent += 1) {
    page = await get('/v1/jobs', { query: { ...query, limit: query.limit - items.length, cursor: page.next_cursor } });
    items.push(...page.items);
    looked += page.looked_at ?? 0;
  }
  return { ...page, items, looked_at: looked };
}

// The jobs with these ids as they are now; those that are gone are left out.
export async function readJobs(ids) {
  const answers = await Promise.allSettled(ids.map((id) => get(`/v1/jobs/${id}`)));
  return answers.filter(({ value }) => value).map(({ value }) => value);
}
