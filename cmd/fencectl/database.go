package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/oneline"
)

// withDatabase connects, calls do, and closes the connection. It treats an error of do as
// the database's, so do returns what it read and prints nothing. fence.ErrInvalid is a usage error:
// some arguments only the call can judge.
func (d *databaseFlags) withDatabase(ctx context.Context, do func(context.Context, *pgxpool.Pool) error) error {
	config, err := databaseConfig(d.url)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return d.explain(err)
	}
	defer closeSoon(pool)
	if err = ping(ctx, pool); err == nil {
		err = do(ctx, pool)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fence.ErrInvalid):
		return cli.UsageErrorf("%w", err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return cli.NotReady(fmt.Errorf("gave up after %v (--timeout): %w", d.timeout, err))
	}
	return d.explain(err)
}

// ping reports whether the database answers within reachTimeout.
func ping(ctx context.Context, pool *pgxpool.Pool) error {
	reach, stop := context.WithTimeout(ctx, reachTimeout)
	defer stop()
	err := pool.Ping(reach)
	if err != nil && ctx.Err() == nil && reach.Err() != nil {
		return fmt.Errorf("the database gave no answer within %v: %w", reachTimeout, err)
	}
	return err
}

// reachTimeout bounds the time to connect, where --timeout allows for more.
const reachTimeout = 30 * time.Second

// closeGrace bounds the wait for the connections to be closed in good order.
const closeGrace = time.Second

// closeSoon closes the pool, but doesn't make a user wait after an interrupt: pgx takes
// 15 s to close a connection to a server that no longer answers. The end of the process closes
// it anyway.
func closeSoon(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeGrace):
	}
}

const urlAdvice = `give a URL (postgres://user@host:5432/database) or keywords (host=... dbname=...), ` +
	`and write / ? # @ : in a URL's password as %2F %3F %23 %40 %3A, or put the password into PGPASSWORD or ~/.pgpass`

// databaseConfig reads --database-url, or libpq's variables. Errors repeat neither the
// malformed setting nor the parser's message: either may contain a part of the password.
func databaseConfig(url string) (*pgxpool.Config, error) {
	if passwordInPath(url) {
		return nil, cli.UsageErrorf("--database-url (FENCEKIT_DATABASE_URL) has an @ after its host: %s", urlAdvice)
	}
	config, err := pgxpool.ParseConfig(url)
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return nil, cli.UsageErrorf("a file that the database's settings name can't be read: %w", file)
	}
	if err != nil && url == "" {
		return nil, cli.UsageErrorf("libpq's variables (PGHOST, PGPORT, PGSSLMODE, ...) can't be understood; correct them, or use --database-url")
	}
	if err != nil {
		return nil, cli.UsageErrorf("--database-url (FENCEKIT_DATABASE_URL) can't be understood: %s", urlAdvice)
	}
	if _, named := config.ConnConfig.RuntimeParams["application_name"]; !named {
		config.ConnConfig.RuntimeParams["application_name"] = "fencectl"
	}
	// A pooler in transaction mode may be in between: no prepared statement has a name.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	return config, nil
}

// passwordInPath reports whether a URL such as postgres://user:12/34@host/db
// would be read as port 12 of host "user" and database "34@host/db", which
// errors would then name.
func passwordInPath(url string) bool {
	_, rest, isURL := strings.Cut(url, "://")
	authority, path, _ := strings.Cut(rest, "/")
	path, _, _ = strings.Cut(path, "?")
	return isURL && !strings.Contains(authority, "@") && strings.Contains(path, "@")
}

// explain adds to an error of the database what to do about it.
func (d *databaseFlags) explain(err error) error {
	if errors.As(err, new(*pgconn.ConnectError)) {
		err = oneline.Error(err)
	}
	if advice := d.advice(err); advice != "" {
		err = fmt.Errorf("%w\n%s", err, advice)
	}
	return cli.NotReady(err)
}

// missesRights reports whether the database rejected a statement because of the role's rights.
func missesRights(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == "42501"
}

// misses reports whether Fencekit's schema is missing, or a table or function in it.
func (d *databaseFlags) misses(answer *pgconn.PgError) bool {
	switch answer.Code {
	case "3F000": // no such schema; other languages have other quotes
		return strings.Contains(answer.Message, d.schema)
	case "42883", "42P01": // no such function, table
		return strings.Contains(answer.Message, d.schema+".")
	}
	return false
}

func (d *databaseFlags) advice(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		switch {
		case strings.HasPrefix(answer.Code, "28"): // invalid authorization
			return "Check user and password: --database-url (FENCEKIT_DATABASE_URL), PGUSER, PGPASSWORD, ~/.pgpass."
		case answer.Code == "3D000": // no such database
			return "Create the database first, or correct --database-url (FENCEKIT_DATABASE_URL) or PGDATABASE."
		case d.misses(answer):
			return "The schema is missing, or older than this fencectl: run \"fencectl migrate up\", or correct --schema."
		case missesRights(err):
			return "Connect as another role; the command's --help says which one it needs."
		}
		return ""
	}
	var dial *net.OpError
	var lookup *net.DNSError
	if errors.As(err, &dial) || errors.As(err, &lookup) {
		return "Check that Postgres runs, and where: --database-url (FENCEKIT_DATABASE_URL), PGHOST, PGPORT."
	}
	return ""
}
