#!/usr/bin/env bash
# PostgreSQL 15.18, github.com/jackc/pgx/v5 v5.13.0: a prepared FETCH describes its rows as the cursor's were when it was
# prepared, for as long as the session lives. pgx prepares each text once for a connection (its default mode), so in a
# later transaction that declares a cursor of the same name with other columns, the same "fetch" decodes these as the
# first cursor's: with as many columns there is no error, and the values are wrong.
#
# Seen: a cursor over 7::int8 gives 7; then one over 1.5::float8 gives 4609434218613702656, of type int8, without an
# error; with pgx.QueryExecModeExec, which prepares anew, 1.5. (A changed SELECT is an error, "cached plan must not change
# result type"; the server doesn't look at what FETCH will return.)
#
# Why it matters here: package jobs fetches the rows of a user's query from a cursor, on pooled connections that other
# queues use too: they would read each other's columns. So it fetches in that mode.
#
# It needs PostgreSQL's programs (initdb, pg_ctl), and Go. Exits 1 if the behaviour has changed.
set -euo pipefail
dir=$(mktemp -d)
as=()
if [ "$(id -u)" = 0 ]; then
	as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
	chown nobody "$dir"
fi
bin=$(dirname "$(command -v initdb || ls -d /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)")
trap '"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate stop >"$dir/stop.log" 2>&1 || true; rm -rf "$dir"' EXIT
"${as[@]}" "$bin/initdb" -D "$dir/data" -U postgres -A trust >"$dir/initdb.log"
"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -o "-c listen_addresses= -c unix_socket_directories=$dir" -l "$dir/log" -w start >"$dir/start.log"
mkdir "$dir/go"
cd "$dir/go"
cat >go.mod <<'GO'
module finding

go 1.24

require github.com/jackc/pgx/v5 v5.13.0
GO
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
)

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "host="+os.Args[1]+" user=postgres dbname=postgres")
	check(err)
	var version string
	check(conn.QueryRow(ctx, "show server_version").Scan(&version))
	fetch := func(query string, args ...any) string {
		tx, err := conn.Begin(ctx)
		check(err)
		defer tx.Rollback(ctx)
		_, err = tx.Exec(ctx, "declare c cursor for "+query)
		check(err)
		rows, err := tx.Query(ctx, "fetch 1 from c", args...)
		check(err)
		value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[any])
		check(err)
		return fmt.Sprintf("%T %v", value, value)
	}
	got := []string{fetch("select 7::int8"), fetch("select 1.5::float8"), fetch("select 1.5::float8", pgx.QueryExecModeExec)}
	fmt.Printf("PostgreSQL %s: %q\n", version, got)
	if fmt.Sprint(got) != "[int64 7 int64 4609434218613702656 float64 1.5]" {
		fmt.Println("the behaviour has changed")
		os.Exit(1)
	}
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
GO
go mod tidy >"$dir/tidy.log" 2>&1
go run . "$dir"
