#!/usr/bin/env bash
# PostgreSQL 15.18, github.com/jackc/pgx/v5 v5.13.0: Pool.Acquire pings a connection that was idle for more than a second,
# under the caller's context and no other limit (PingTimeout is 0 unless it is set). Where the server behind that
# connection has gone silent, the call waits until its context ends, and fails, although the pool may open more
# connections, and a new one would be answered at once. Only the next call gets one.
#
# Seen: a pool of at most 4 with one idle connection, whose backend is stopped (SIGSTOP): Acquire with a context of 3 s
# fails with context deadline exceeded; a new connection made meanwhile answers; the next Acquire succeeds.
#
# Why it matters here: a call under a lease of 10 s must not spend it on one dead connection. So Fencekit bounds pings
# while it acquires, and says of such a failure what it waited for.
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
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func main() {
	ctx := context.Background()
	dsn := "host=" + os.Args[1] + " user=postgres dbname=postgres"
	pool, err := pgxpool.New(ctx, dsn+" pool_max_conns=4")
	check(err)
	var pid int
	var version string
	check(pool.QueryRow(ctx, "select pg_backend_pid(), current_setting('server_version')").Scan(&pid, &version))
	check(syscall.Kill(pid, syscall.SIGSTOP))
	defer syscall.Kill(pid, syscall.SIGCONT)
	time.Sleep(1100 * time.Millisecond) // idle for long enough to be pinged

	limited, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	first := make(chan error, 1)
	go func() {
		_, err := pool.Acquire(limited)
		first <- err
	}()
	conn, err := pgx.Connect(ctx, dsn)
	check(err)
	check(conn.Ping(ctx))
	fresh := limited.Err() == nil
	failed := <-first
	again, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = pool.Acquire(again)
	got := []bool{fresh, errors.Is(failed, context.DeadlineExceeded), err == nil}
	fmt.Printf("PostgreSQL %s: a new connection answers: %v; Acquire fails at its deadline: %v; the next succeeds: %v\n", version, got[0], got[1], got[2])
	if !got[0] || !got[1] || !got[2] {
		fmt.Println("the behaviour has changed:", failed, err)
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
