#!/bin/sh
# Makes what the containers of compose.yaml need, as root: tokens, if there are none, and folders that
# belong to the user of the server and the workers, USER:GROUP. Tokens that are there stay as they are.
set -eu
owner=$1
umask 077

admin=/run/server/admin # of the server's --token-file
tokens=/run/server/tokens # of its --tokens: what the workers may do
worker=/run/worker/token # the workers' own

new_token() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

[ -s "$admin" ] || new_token > "$admin"
[ -s "$worker" ] || new_token > "$worker"
# It begins with a new line, because the last line of a file from elsewhere may have no end.
grep -qsF "$(cat "$worker")" "$tokens" ||
    printf '\n%s role=worker name=compose schedules=yes\n' "$(cat "$worker")" >> "$tokens"
chown -R "$owner" /data /run/server /run/worker
chown "$owner" /output
