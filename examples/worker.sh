#!/usr/bin/env bash
# A schedo worker in bash, with curl and jq: bash worker.sh [NAME]. It speaks docs/protocol.md.
server=${SCHEDO_URL:-http://127.0.0.1:8080} results=
me="{\"worker\": \"${1:-bash-$$}\", \"session\": \"$$-$RANDOM\", \"tasks\": [\"increment\"]}"

work() { jq -c '{Num: (.Num + 1)}'; } # the task: reads the payload, prints the result

say() { # sends these fields, again and again until there is an answer
  local body reply
  body=$(jq -cs add <<<"$me $1")
  while reply=$(curl -sS --max-time 60 -w '\n%{http_code}' --data-binary @- \
    -H 'content-type: application/json' ${SCHEDO_TOKEN:+-H "authorization: Bearer $SCHEDO_TOKEN"} \
    "$server/v1/work" <<<"$body"); kill -0 $$; do
    case ${reply##*$'\n'} in
      200) echo "${reply%$'\n'*}" && return ;;
      401 | 403 | 409) echo "$reply" >&2 && kill $$ ;; # not welcome, or replaced
      400 | 413 | 422) # these results will never be taken
        body=$(jq -c '.results |= map({lease, outcome: "failed", retryable: false, error: {type: "result-refused", message: "the server did not take the result"}})' <<<"$body") ;;
    esac
    sleep 1
  done
}

while answer=$(say "{\"running\": [], \"results\": [$results], \"wait\": 20}"); do
  results=
  read -r lease payload < <(jq -r '.leases[] | "\(.lease) \(.payload | tojson)"' <<<"$answer") || continue
  while sleep 10 && kill -0 $$; do say '{"max_leases": 0, "results": []}'; done >/dev/null & # signs of life while it takes long
  if value=$(work <<<"$payload"); then
    results="{\"lease\": \"$lease\", \"outcome\": \"completed\", \"result\": $value}"
  else
    results="{\"lease\": \"$lease\", \"outcome\": \"failed\", \"error\": {\"type\": \"exit-code\", \"message\": \"exit code $?\"}}"
  fi
  kill $!
done
