#!/usr/bin/env bash
# PgBouncer 1.18.0 in front of PostgreSQL 15.18: three things that PgBouncer says have SQLSTATE 08P01, protocol
# violation: that a database is unknown to it, that all server connections are in use (query_wait_timeout), that the
# server is away. So by its code an error that will stay can't be told from one that passes, nor a limit from a lost
# connection; PostgreSQL has 3D000, 53300 and 57P03 for these. Of a full pool and a server that isn't there even the texts
# are the same.
#
# Seen: 08P01 no such database: nothing; 08P01 query_wait_timeout; 08P01 query_wait_timeout.
#
# Why it matters here: what may be tried again, and whether a COMMIT may have arrived, depends on which it was. So the
# store looks at the texts of limits, and takes the rest for a connection that was lost.
#
# It needs PgBouncer and PostgreSQL's programs (initdb, pg_ctl), and Go. Exits 1 if the behaviour has changed.
set -euo pipefail
dir=$(mktemp -d)
as=()
if [ "$(id -u)" = 0 ]; then
	as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
	chown nobody "$dir"
fi
bin=$(dirname "$(command -v initdb || ls -d /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)")
PATH=$PATH:$bin:$(dirname "$(readlink -f "$bin/initdb")"):/usr/sbin
pooler=
trap 'kill $pooler 2>/dev/null || true; "${as[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate stop >"$dir/stop.log" 2>&1 || true; rm -rf "$dir"' EXIT
"${as[@]}" "$bin/initdb" -D "$dir/data" -U postgres -A trust >"$dir/initdb.log"
"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -o "-c listen_addresses= -c unix_socket_directories=$dir" -l "$dir/log" -w start >"$dir/start.log"
echo '"postgres" ""' >"$dir/users"
cat >"$dir/ini" <<END
[databases]
one = host=$dir dbname=postgres pool_size=1
away = host=$dir/nowhere dbname=postgres
[pgbouncer]
listen_addr =
listen_port = 6543
unix_socket_dir = $dir
auth_type = trust
auth_file = $dir/users
pool_mode = transaction
query_wait_timeout = 3
server_login_retry = 1
END
"${as[@]}" pgbouncer "$dir/ini" >"$dir/pooler.log" 2>&1 &
pooler=$!
for _ in $(seq 300); do [ -S "$dir/.s.PGSQL.6543" ] && break; sleep 0.1; done
pgbouncer --version | sed -n 1p
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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func main() {
	ctx := context.Background()
	connect := func(database string) (*pgx.Conn, error) {
		return pgx.Connect(ctx, "host="+os.Args[1]+" port=6543 user=postgres default_query_exec_mode=exec dbname="+database)
	}
	ask := func(database string) error {
		conn, err := connect(database)
		if err == nil {
			_, err = conn.Exec(ctx, "select 1")
		}
		return err
	}
	holder, err := connect("one")
	if err == nil {
		_, err = holder.Exec(ctx, "begin")
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	texts := []string{"no such database: nothing", "query_wait_timeout", "query_wait_timeout"}
	for i, err := range []error{ask("nothing"), ask("one"), ask("away")} {
		var failed *pgconn.PgError
		if !errors.As(err, &failed) || failed.Code != "08P01" || failed.Message != texts[i] {
			fmt.Println("the behaviour has changed:", err)
			os.Exit(1)
		}
		fmt.Println(failed.Code, failed.Message)
	}
}
GO
go mod tidy >"$dir/tidy.log" 2>&1
go run . "$dir"
