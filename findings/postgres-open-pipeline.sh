#!/usr/bin/env bash
# PostgreSQL 15.18: between the Execute of a statement and the Sync that ends its message, no timeout of the server runs. A
# client that stops there keeps its transaction open, and its locks: statement_timeout ended with the Execute, and
# idle_in_transaction_session_timeout begins after the Sync. The session is shown as active, and
# pg_cancel_backend is looked at only with the client's next message.
#
# Seen: begin and update by Parse, Bind, Execute, Flush, without a Sync; both limits at 100 ms. After 2 s the session is
# active, and so it is 1 s after pg_cancel_backend, which returns true; pg_terminate_backend ends it.
#
# Why it matters here: a seal and COMMIT sent as two Executes would leave the fence's row locked for as long as a stopped
# client likes, if it stops in between. So both are one simple query, of which the server runs nothing before all is there.
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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

func main() {
	ctx := context.Background()
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, "host="+os.Args[1]+" user=postgres dbname=postgres")
		check(err)
		return conn
	}
	other, client := connect(), connect()
	_, err := other.Exec(ctx, "create table t (n int); insert into t values (0)")
	check(err)
	_, err = client.Exec(ctx, "set statement_timeout = 100; set idle_in_transaction_session_timeout = 100")
	check(err)
	front := client.PgConn().Frontend()
	for _, sql := range []string{"begin", "update t set n = 1"} {
		front.SendParse(&pgproto3.Parse{Query: sql})
		front.SendBind(&pgproto3.Bind{})
		front.SendExecute(&pgproto3.Execute{})
	}
	front.Send(&pgproto3.Flush{})
	check(front.Flush())
	pid := client.PgConn().PID()
	state := func() (s string) {
		check(other.QueryRow(ctx, "select coalesce(max(state), 'gone') from pg_stat_activity where pid = $1", pid).Scan(&s))
		return s
	}
	signal := func(name string) (done bool) {
		check(other.QueryRow(ctx, "select "+name+"($1)", pid).Scan(&done))
		return done
	}
	time.Sleep(2 * time.Second)
	got := state()
	got += fmt.Sprintf(", canceled %v", signal("pg_cancel_backend"))
	time.Sleep(time.Second)
	got += ", " + state()
	var locks int
	check(other.QueryRow(ctx, "select count(*) from pg_locks where pid = $1 and mode = 'RowExclusiveLock' and granted", pid).Scan(&locks))
	got += fmt.Sprintf(", table locks %d, terminated %v", locks, signal("pg_terminate_backend"))
	for n := 0; n < 300 && state() != "gone"; n++ {
		time.Sleep(100 * time.Millisecond)
	}
	got += ", " + state()
	fmt.Println(got)
	if got != "active, canceled true, active, table locks 1, terminated true, gone" {
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
