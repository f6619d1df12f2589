// The next 24 hours of all schedules: when each fires, and how many fire in the same second.
import { get } from '../../lib/api.js';
import { html, styled, useEffect, useState } from '../../lib/base.js';
import { clock, compact, count, instant, minuteOf, now, plural } from '../../lib/format.js';
import { useEvent } from '../../lib/live.js';
import { zone } from '../../lib/prefs.js';
import { link } from '../../lib/router.js';
import { Card, Empty, Failure, Loading, Since, useData, useEvery } from '../../parts/basics.js';
import { TableToggle } from '../../parts/table_toggle.js';

const SHOWN = 10;
const MANY = 4; // from this number of schedules in one second on, a bar is amber
const WIDE = 1000; // units of a lane, whatever its width is
const AGAIN_MS = 300_000; // a bucket: then the window has moved on
const SECOND = 1e6;
const HOUR = 3600 * SECOND;

const placeName = (tz) => tz.split('/').pop().replaceAll('_', ' ');
const nameOf = (item) => (item.schedules > 1 ? `${item.names[0]} + ${count(item.schedules - 1)}` : item.names[0]);
const hrefOf = (item) => (item.schedules > 1 ? link('/schedules') : link(`/schedules/${encodeURIComponent(item.names[0])}`));

// The instants with a label: each third hour of the chosen zone, whose offset may be a quarter of an hour.
function findHours(from, to) {
  const found = [];
  for (let at = Math.ceil(from / (HOUR / 4)) * (HOUR / 4); at < to; at += HOUR / 4) {
    const [hour, minute] = minuteOf(at).split(':').map(Number);
    if (minute === 0 && hour % 3 === 0) found.push(at);
  }
  return found;
}

function read() {
  return get('/v1/fires').then((found) => {
    const from = instant(found.from);
    return { ...found, from, to: instant(found.to), bucket: (instant(found.to) - from) / found.together.length };
  });
}

// The first fire that is still to come, of the rules whose fires are listed.
function findNext(data) {
  let best = null;
  for (const item of data.items) {
    const at = item.seconds?.map((second) => data.from + second * SECOND).find((each) => each > now());
    if (at && (!best || at < best.at)) best = { at, item };
  }
  return best;
}

// Rules that fire too often for their fires to be listed: one of them may be the next, so they are named.
const sayOften = (often) => html`<a href=${hrefOf(often[0])}>${nameOf(often[0])}</a>${often.length > 1 && ` and ${plural(often.length - 1, 'more rule')}`} ${often.length > 1 || often[0].schedules > 1 ? 'fire' : 'fires'} often`;

function Next({ data }) {
  const [, again] = useState(0);
  const next = findNext(data);
  const often = data.items.filter((item) => item.count && !item.seconds);
  useEffect(() => {
    if (!next) return undefined;
    const timer = setTimeout(() => again((n) => n + 1), Math.max(200, (next.at - now()) / 1000 + 50));
    return () => clearTimeout(timer);
  }, [next?.at]);
  if (!next) return often.length > 0 && html`<p class="next">${sayOften(often)}.</p>`;
  return html`<p class="next">${often.length ? html`${sayOften(often)}. Next of the others: ` : 'Next: '}<a href=${hrefOf(next.item)}>${nameOf(next.item)}</a> at <span class="mono">${clock(next.at)}</span>, in <${Since} at=${next.at}/></p>`;
}

const Svg = ({ height, label, children }) => html`<svg viewBox=${`0 0 ${WIDE} ${height}`} height=${height} preserveAspectRatio="none"
  role=${label ? 'img' : undefined} aria-label=${label} aria-hidden=${label ? undefined : 'true'}>${children}</svg>`;

const grid = (data, hours, height) => html`<path class="grid" vector-effect="non-scaling-stroke" d=${hours.map((at) => `M${xOf(data, at)} 0v${height}`).join('')}/>`;
const xOf = (data, at) => (((at - data.from) / (data.to - data.from)) * WIDE).toFixed(2);

function Together({ data, hours, onPoint }) {
  const height = 44;
  const most = Math.max(...data.together, 1);
  const width = WIDE / data.together.length;
  const bar = (number, at) => {
    const tall = (number / most) * (height - 2);
    return `M${(at * width).toFixed(2)} ${height}v${-tall.toFixed(1)}h${(width * 0.82).toFixed(2)}v${tall.toFixed(1)}z`;
  };
  const bars = (isMany) => data.together.map((number, at) => (number && (number >= MANY) === isMany ? bar(number, at) : '')).join('');
  const [top] = data.busiest;
  const label = top ? `At most ${plural(top.schedules, 'schedule')} fire in the same second, at ${clock(instant(top.at))}` : 'No two schedules fire in the same second';
  const point = (event) => {
    const edge = event.currentTarget.getBoundingClientRect();
    onPoint(Math.floor(((event.clientX - edge.left) / edge.width) * data.together.length));
  };
  return html`<li class="together"><span>in the same second</span>
    <div class="lane" onMouseMove=${point} onMouseLeave=${() => onPoint(null)}><${Svg} height=${height} label=${label}>${grid(data, hours, height)}
      <path class="few" d=${bars(false)}/><path class="many" d=${bars(true)}/></${Svg}></div>
    <span class="small mono muted">${top ? html`most ${top.schedules}<br/>at ${minuteOf(instant(top.at))}` : ''}</span></li>`;
}

function Lane({ data, item, hours }) {
  const height = 20;
  const ticks = item.seconds
    ? html`<path class="ticks" vector-effect="non-scaling-stroke" d=${item.seconds.map((second) => `M${xOf(data, data.from + second * SECOND)} 4v12`).join('')}/>`
    : html`<rect class="dense" x="0" y="7" width=${WIDE} height="6"/>`;
  const title = `${item.rule} (${item.tz})${item.schedules > 1 ? `: ${item.names.join(', ')}` : ''}`;
  return html`<li title=${title}><a href=${hrefOf(item)}>${nameOf(item)}</a>
    <div class="lane"><${Svg} height=${height}>${grid(data, hours, height)}<path class="rail" vector-effect="non-scaling-stroke" d=${`M0 10h${WIDE}`}/>${ticks}</${Svg}>
      ${item.clock_changes?.map((change) => html`<span class="change" title=${change.clock_change} ref=${styled({ left: `${xOf(data, instant(change.at)) / 10}%` })}>⌁</span>`)}</div>
    <span class="small mono muted">${compact(item.count)} × ${placeName(item.tz)}</span></li>`;
}

function Lanes({ data }) {
  const [bucket, setBucket] = useState(null);
  zone.value;
  const hours = findHours(data.from, data.to);
  const fires = data.items.filter((item) => item.count);
  const rest = fires.length - SHOWN;
  const at = bucket === null ? null : data.from + data.together_at[bucket] * SECOND;
  return html`<ul class="lanes"><${Together} data=${data} hours=${hours} onPoint=${setBucket}/>
    ${fires.slice(0, SHOWN).map((item) => html`<${Lane} data=${data} item=${item} hours=${hours} key=${item.names[0] + item.rule}/>`)}
    <li class="hours" aria-hidden="true"><span></span><div class="lane">${hours.map((hour) => html`<span ref=${styled({ left: `${xOf(data, hour) / 10}%` })}>${minuteOf(hour)}</span>`)}</div><span></span></li></ul>
    <div class="foot"><span>${bucket !== null && data.together[bucket] ? `${plural(data.together[bucket], 'schedule')} at ${clock(at)}`
      : rest > 0 || data.has_more ? `and ${data.has_more ? 'more' : rest} more rules` : ''}</span>
    <${TableToggle} head=${['Schedule', 'Rule', 'Zone', 'Fires', 'Next']} rows=${() => fires.map((item) => rowOf(data, item))} caption="Fires of the next 24 hours"/></div>`;
}

function rowOf(data, item) {
  const next = item.seconds?.map((second) => data.from + second * SECOND).find((each) => each > now());
  return [nameOf(item), item.rule, item.tz, count(item.count), next ? clock(next) : 'often'];
}

export function NextDay() {
  const [data, error, reload] = useData(read, []);
  useEvent('missed', reload);
  useEvery(AGAIN_MS, reload);
  return html`<${Card} title="The next 24 hours" about=${`ticks are fires; a bar is how many schedules fire in the same second, amber from ${MANY} on`}
    more=${{ href: link('/schedules'), text: 'all schedules' }}>${content(data, error, reload)}</${Card}>`;
}

function content(data, error, reload) {
  if (error && !data) return html`<${Failure} error=${error} what="The fires" again=${reload}/>`;
  if (!data) return html`<${Loading}/>`;
  if (!data.items.some((item) => item.count)) return html`<${Empty}>No schedule fires in the next 24 hours.</${Empty}>`;
  return html`<${Next} data=${data}/><${Lanes} data=${data}/>`;
}
