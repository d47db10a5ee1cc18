#!/usr/bin/env bash
# PostgreSQL 15.18: after a crash pg_xact_status doesn't say "aborted" of a transaction that was lost with it. If the log
# has no record of it the server hands out its id once more: until then the question is an error, "transaction ID … is in
# the future", and afterwards the answer is that of another transaction.
#
# Seen: of a transaction that had its id before the crash: ERROR: transaction ID 724 is in the future; and once another
# one has got the same id, and has committed: committed.
#
# Why it matters here: who asks by this whether a COMMIT without an answer took effect takes a stranger's outcome for its
# own after a crash. So Fencekit asks for the position of the fence, and takes this error for what it is.
#
# It needs PostgreSQL's programs (initdb, pg_ctl, psql). Exits 1 if the behaviour has changed.
set -euo pipefail
dir=$(mktemp -d)
as=()
if [ "$(id -u)" = 0 ]; then
	as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
	chown nobody "$dir"
fi
bin=$(dirname "$(command -v initdb || ls -d /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)")
PATH=$PATH:$bin:$(dirname "$(readlink -f "$bin/initdb")")
trap '"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate stop >"$dir/stop.log" 2>&1 || true; rm -rf "$dir"' EXIT
start() { "${as[@]}" "$bin/pg_ctl" -D "$dir/data" -o "-c listen_addresses= -c unix_socket_directories=$dir -c autovacuum=off" -l "$dir/log" -w start >"$dir/start.log"; }
ask() { psql -h "$dir" -U postgres -XAtq -c "$1" 2>&1 || true; }
"${as[@]}" "$bin/initdb" -D "$dir/data" -U postgres -A trust >"$dir/initdb.log"
start
mkfifo "$dir/in"
psql -h "$dir" -U postgres -XAtq <"$dir/in" >"$dir/out" 2>&1 &
exec 3>"$dir/in"
echo "begin; select pg_current_xact_id();" >&3
for _ in $(seq 300); do [ -s "$dir/out" ] && break; sleep 0.1; done
id=$(cat "$dir/out")
"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate -w stop >"$dir/stop.log" # as a crash
exec 3>&-
wait || true
start
lost=$(ask "select pg_xact_status('$id')")
other=$(ask "select pg_current_xact_id()") # the next transaction, which commits
again=$(ask "select pg_xact_status('$id')")
echo "PostgreSQL $(ask "show server_version"): of $id: $lost; the next transaction is $other; of $id: $again"
[ "$lost; $other; $again" = "ERROR:  transaction ID $id is in the future; $id; committed" ] || { echo "the behaviour has changed"; exit 1; }
