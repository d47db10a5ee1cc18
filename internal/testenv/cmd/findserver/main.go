// Command findserver prints which postgres, pgbouncer, redis, python, patroni or haproxy the tests
// would use; that is its argument. Postgres is started for that, asked and stopped. It exits with 3 if there is
// none to be found, so that one may be installed, and with 1 if what was named or found fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/patroni"
	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/process"
	"github.com/fencekit/fencekit/internal/testenv/python"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

const (
	exitFailed   = 1
	exitNotFound = 3
	exitUsage    = 64
)

func main() {
	testenv.Reexec()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: findserver postgres|pgbouncer|redis|python|patroni|haproxy")
		os.Exit(exitUsage)
	}
	if err := find(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		var none *process.NotFoundError
		if errors.As(err, &none) {
			os.Exit(exitNotFound)
		}
		os.Exit(exitFailed)
	}
}

func find(ctx context.Context, server string) error {
	switch server {
	case "postgres":
		p, err := pgserver.Start(ctx, nil)
		if err != nil {
			return err
		}
		return p.Stop(ctx)
	case "pgbouncer":
		return show(ctx, "PgBouncer", pgbouncer.Find)
	case "redis":
		return show(ctx, "Redis", redisserver.Find)
	case "python":
		return show(ctx, "psycopg", python.Find)
	case "patroni":
		return show(ctx, "Patroni", patroni.FindPatroni)
	case "haproxy":
		return show(ctx, "HAProxy", patroni.FindHAProxy)
	}
	return fmt.Errorf("findserver: no server %q: must be postgres, pgbouncer, redis, python, patroni or haproxy", server)
}

func show(ctx context.Context, server string, find func(context.Context) (path, version string, err error)) error {
	path, version, err := find(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s: local %s (%s)\n", server, path, version)
	return nil
}
