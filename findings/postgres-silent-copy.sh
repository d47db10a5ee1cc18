#!/usr/bin/env bash
# PostgreSQL 15.18: neither statement_timeout nor pg_cancel_backend ends a COPY … FROM STDIN whose client sends nothing.
# The server notes the request, and looks at it only when the client's next message has arrived. The session counts as
# active, so idle_in_transaction_session_timeout doesn't end it either. Its locks stay meanwhile.
#
# Seen: with both limits at 100 ms a silent COPY is still "active" after 2 s and after pg_cancel_backend, which returns
# true; pg_terminate_backend ends it.
#
# Why it matters here: a stopped process within CopyFrom holds its rows, whatever limits its transaction has, so a
# successor has to end the session, for which its role needs the right.
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
"${as[@]}" "$bin/initdb" -D "$dir/data" -U postgres -A trust >"$dir/initdb.log"
"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -o "-c listen_addresses= -c unix_socket_directories=$dir" -l "$dir/log" -w start >"$dir/start.log"
ask() { psql -h "$dir" -U postgres -XAtq -c "$1"; }
state="select coalesce(max(state), 'gone') from pg_stat_activity where application_name = 'silent'"
await() { for _ in $(seq 300); do [ "$(ask "$state")" = "$1" ] && return; sleep 0.1; done; }

ask "create table t (n int)"
mkfifo "$dir/in"
PGAPPNAME=silent psql -h "$dir" -U postgres -Xq <"$dir/in" >"$dir/out" 2>&1 &
exec 3>"$dir/in"
echo "set statement_timeout = 100; set idle_in_transaction_session_timeout = 100; begin; copy t from stdin;" >&3
await active
sleep 2
limits=$(ask "$state")
canceled=$(ask "select pg_cancel_backend(pid) from pg_stat_activity where application_name = 'silent'")
sleep 1
after=$(ask "$state")
ask "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'silent'" >"$dir/ended"
await gone
got="20 times the limits: $limits; pg_cancel_backend: $canceled, then $after; pg_terminate_backend: $(ask "$state")"
exec 3>&-
wait || true
echo "PostgreSQL $(ask "show server_version"): $got"
[ "$got" = "20 times the limits: active; pg_cancel_backend: t, then active; pg_terminate_backend: gone" ] || { echo "the behaviour has changed"; exit 1; }
