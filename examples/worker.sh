#!/usr/bin/env bash
# A schedo worker in bash, with curl and jq: bash worker.sh [NAME]. It implements docs/protocol.md.
server=${SCHEDO_URL:-http://127.0.0.1:8080} results=
me="{\"worker\": \"${1:-bash-$$}\", \"session\": \"$$-$RANDOM\", \"tasks\": [\"increment\"]}"

work() { jq -c '{Num: (.Num + 1)}'; } # the task: reads the payload, prints the result

send() { # repeats a request with these fields until it gets a response
  local body reply
  body=$(jq -cs add <<<"$me $1")
  while reply=$(curl -sS --max-time 60 -w '\n%{http_code}' --data-binary @- \
    -H 'content-type: application/json' ${SCHEDO_TOKEN:+-H "authorization: Bearer $SCHEDO_TOKEN"} \
    "$server/v1/work" <<<"$body"); kill -0 $$; do
    case ${reply##*$'\n'} in
      200) echo "${reply%$'\n'*}" && return ;;
      401 | 403 | 409) echo "$reply" >&2 && kill $$ ;; # wrong token, or replaced
      000) ;; # curl has said why
      400 | 413 | 422) # the server will never accept these results
        echo "$reply" >&2
        body=$(jq -c '.results |= map({lease, outcome: "failed", retryable: false, error: {type: "result-refused", message: "the server did not take the result"}})' <<<"$body") ;;
      *) echo "$reply" >&2 ;;
    esac
    sleep 1
  done
}

while answer=$(send "{\"running\": [], \"results\": [$results], \"wait\": 20}"); do
  results=
  read -r lease payload < <(jq -r '.leases[] | "\(.lease) \(.payload | tojson)"' <<<"$answer") || continue
  while sleep 10 && kill -0 $$; do send '{"max_leases": 0, "results": []}'; done >/dev/null & # heartbeats
  if value=$(work <<<"$payload"); then
    results="{\"lease\": \"$lease\", \"outcome\": \"completed\", \"result\": $value}"
  else
    results="{\"lease\": \"$lease\", \"outcome\": \"failed\", \"error\": {\"type\": \"exit-code\", \"message\": \"exit code $?\"}}"
  fi
  kill $!
done
