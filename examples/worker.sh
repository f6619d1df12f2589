#!/usr/bin/env bash
# A schedo worker in bash, with curl and jq: bash worker.sh [NAME]. It speaks docs/protocol.md.
server=${SCHEDO_URL:-http://127.0.0.1:8080} results=
me="{\"worker\": \"${1:-bash-$$}\", \"session\": \"$$-$RANDOM\", \"tasks\": [\"increment\"]}"

work() { jq -c '{Num: (.Num + 1)}'; } # the task: reads the payload, prints the result

say() { # sends these fields, again and again until there is an answer
  until jq -cs add <<<"$me $1" | curl -sS --fail-with-body --max-time 60 --data-binary @- \
    -H 'content-type: application/json' ${SCHEDO_TOKEN:+-H "authorization: Bearer $SCHEDO_TOKEN"} \
    "$server/v1/work"; do sleep 1 && kill -0 $$ || exit; done
}

while answer=$(say "{\"running\": [], \"results\": [$results], \"wait\": 20}"); do
  results=
  read -r lease bid payload < <(jq -r '.leases[] | "\(.lease) \(.bid) \(.payload | tojson)"' <<<"$answer") || continue
  if [ "$bid" = true ] && say "{\"accept\": [\"$lease\"], \"running\": [\"$lease\"], \"want\": 0}" | grep -q "disowned\":\[\"$lease"; then continue; fi
  while sleep 10 && kill -0 $$; do say '{"want": 0}'; done >/dev/null & # signs of life while it takes long
  if value=$(work <<<"$payload"); then
    results="{\"lease\": \"$lease\", \"outcome\": \"completed\", \"result\": $value}"
  else
    results="{\"lease\": \"$lease\", \"outcome\": \"failed\", \"error\": {\"type\": \"exit-code\", \"message\": \"exit code $?\"}}"
  fi
  kill $!
done
