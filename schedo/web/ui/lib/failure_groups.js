// Which failed jobs are of a group of GET /v1/failures: the server's own rule, which core/failure_groups.py has.

const WORD = '[\\p{L}\\p{N}_]';
const EDGE = `(?:(?<=${WORD})(?!${WORD})|(?<!${WORD})(?=${WORD}))`;
const VARYING = new RegExp(`${EDGE}(?=[0-9A-Za-z_-]*[0-9])[0-9A-Za-z_-]{8,}${EDGE}|[0-9]+`, 'gu');
const CHARACTERS_MAX = 300;
const REASONS = [ // why there is no retry: the end of a message
  '; it is not retried, because the next run of its schedule comes first',
  '; it is not retried, because that would be after the end of its retries (until)',
];

function normalize(message) {
  const reason = REASONS.find((each) => message.endsWith(each)) ?? '';
  const [line] = [...message.slice(0, message.length - reason.length)].slice(0, CHARACTERS_MAX).join('').split('\n');
  return line.replace(VARYING, '#');
}

export const isOf = ({ task, type, exit_code: code, message }, job) => job.task === task && job.error?.type === type
  && (job.error.exit_code ?? null) === code && normalize(job.error.message ?? '') === message;
