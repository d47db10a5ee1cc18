#!/usr/bin/env bash
# PostgreSQL 15.18: a lock that is taken first in a REPEATABLE READ transaction doesn't protect what is read after it. The
# statement that takes the lock has its snapshot before it waits, and the transaction keeps that snapshot: it reads what
# was there before the lock's last holder committed, and nothing fails. LOCK TABLE alone takes no snapshot.
#
# Seen: a holder writes 1 over 0 and commits, which frees the lock. Who waited for pg_advisory_xact_lock then reads 0, with
# the lock in hand; at READ COMMITTED, or after LOCK TABLE, 1.
#
# Why it matters here: a leader row or an advisory lock at the stricter levels admits a decision on old data. So a guarded
# transaction takes its locks in a statement before the first one with a snapshot, and is compared at COMMIT.
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
ask "create table t (n int); create table l (); insert into t values (0)"

# try LEVEL LOCK prints what one reads who has waited for a lock.
try() {
	ask "update t set n = 0"
	rm -f "$dir/in"
	mkfifo "$dir/in"
	psql -h "$dir" -U postgres -XAtq <"$dir/in" >"$dir/holder" 2>&1 &
	local holder=$!
	exec 3>"$dir/in"
	echo "begin; $2; update t set n = 1; \\echo held" >&3
	for _ in $(seq 300); do grep -q held "$dir/holder" && break; sleep 0.1; done
	ask "begin isolation level $1; $2; select n from t; commit" | grep . >"$dir/waiter" &
	local waiter=$!
	for _ in $(seq 300); do [ "$(ask "select count(*) from pg_locks where not granted")" = 1 ] && break; sleep 0.1; done
	echo "commit;" >&3
	exec 3>&-
	wait "$holder" "$waiter"
	cat "$dir/waiter"
}
advisory="select from pg_advisory_xact_lock(1)"
got="repeatable read $(try "repeatable read" "$advisory"), read committed $(try "read committed" "$advisory"), repeatable read after LOCK TABLE $(try "repeatable read" "lock table l")"
echo "PostgreSQL $(ask "show server_version"): $got"
[ "$got" = "repeatable read 0, read committed 1, repeatable read after LOCK TABLE 1" ] || { echo "the behaviour has changed"; exit 1; }
