package fencectl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/oneline"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage/postgres"
)

type databaseFlags struct {
	url     string
	schema  string
	timeout time.Duration // before the flags are read: the default
}

func (d *databaseFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&d.url, "database-url", "", "Postgres as a URL or keywords; if not given, libpq's variables (PGHOST, PGDATABASE, ...) say where it is")
	d.registerRest(flags)
}

func (d *databaseFlags) registerRest(flags *pflag.FlagSet) {
	flags.StringVar(&d.schema, "schema", postgres.DefaultSchema, "the schema that Fencekit lives in")
	flags.DurationVar(&d.timeout, "timeout", d.timeout, "give up after this long")
	cli.NameVariables(flags, "database-url", "schema", "timeout")
}

// given is for commands that can do without a database.
func (d *databaseFlags) given() bool {
	return d.url+os.Getenv("PGHOST")+os.Getenv("PGHOSTADDR")+os.Getenv("PGSERVICE")+os.Getenv("PGDATABASE") != ""
}

func (d *databaseFlags) validate(*cobra.Command, []string) error {
	if _, err := postgres.Migrations(d.schema); err != nil {
		return cli.UsageErrorf("--schema (FENCEKIT_SCHEMA): %w", err)
	}
	if d.timeout <= 0 {
		return cli.UsageErrorf("--timeout (FENCEKIT_TIMEOUT) is %v, want more than 0, such as 30s", d.timeout)
	}
	return nil
}

type databasesFlags struct {
	databaseFlags // but for url
	urls          []string
	names         []string // of the databases, without passwords
}

func (d *databasesFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&d.urls, "database-url", nil, "Postgres as a URL or keywords; repeat it for each database; if not given, libpq's variables (PGHOST, PGDATABASE, ...) say where the only one is")
	d.registerRest(flags)
}

// validate also names the databases: none if neither the flags nor libpq's variables say where one is.
func (d *databasesFlags) validate(cmd *cobra.Command, args []string) error {
	if err := d.databaseFlags.validate(cmd, args); err != nil {
		return err
	}
	if len(d.urls) == 0 && d.given() {
		d.urls = []string{""}
	}
	for _, url := range d.urls {
		config, err := databaseConfig(url)
		if err != nil {
			return err
		}
		c := config.ConnConfig
		d.names = append(d.names, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))+"/"+c.Database)
	}
	return distinct("--database-url", d.names)
}

func distinct(flag string, names []string) error {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return cli.UsageErrorf("%s has %s twice", flag, name)
		}
	}
	return nil
}

func (d *databasesFlags) each(ctx context.Context, do func(context.Context, int, *session) error) error {
	for i, url := range d.urls {
		one := d.databaseFlags
		one.url = url
		_, err := ask(ctx, &one, func(ctx context.Context, db *session) (any, error) { return nil, do(ctx, i, db) })
		if err != nil {
			return fmt.Errorf("database %s: %w", d.names[i], err)
		}
	}
	return nil
}

// session is a database that answers.
type session struct {
	*pgxpool.Pool
	history *audit.Database
}

// ask asks a database within --timeout. The answer counts also if it fails.
func ask[T any](ctx context.Context, d *databaseFlags, q func(context.Context, *session) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	err = d.with(ctx, func(ctx context.Context, db *session) (err error) {
		answer, err = q(ctx, db)
		return err
	})
	return answer, err
}

// with treats an error of do as the database's, unless it has an exit code already, or is a file's. fence.ErrInvalid
// is a usage error: some arguments only the call can judge.
func (d *databaseFlags) with(ctx context.Context, do func(context.Context, *session) error) error {
	config, err := databaseConfig(d.url)
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return d.explain(err)
	}
	defer closeSoon(pool)
	history, err := audit.Open(pool, d.schema)
	if err == nil {
		err = ping(ctx, pool)
	}
	if err == nil {
		err = do(ctx, &session{pool, history})
	}
	switch {
	case err == nil, errors.As(err, new(*cli.ExitError)), errors.As(err, new(*fs.PathError)):
		return err
	case errors.Is(err, fence.ErrInvalid):
		return cli.UsageErrorf("%w", err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return cli.NotReady(fmt.Errorf("gave up after %v (--timeout): %w", d.timeout, err))
	}
	return d.explain(err)
}

// traces says whether there is a trace of the resource $1, or of those like $2, and which names stand beside $3.
const traces = `
	select exists (select from {{schema}}.resource where name = $1 or name like $2) or exists (select from {{schema}}.lock where resource = $1 or resource like $2)
	    or exists (select from {{schema}}.rejection where resource = $1 or resource like $2) or exists (select from {{schema}}.hold where name = $1 or name like $2),
	       array(select name::text from (
	           (select name from {{schema}}.resource where name < $3 order by name desc limit 2) union all
	           (select name from {{schema}}.resource where name > $3 order by name limit 2)) beside order by name)`

// requireKnown fails if the database has no trace of a resource, or of those that match a pattern: no fence, lock, rejection or hold.
func (d *databaseFlags) requireKnown(ctx context.Context, db *session, name string, pattern bool) error {
	exact, like, what := name, "", " "+strconv.Quote(name)
	if pattern {
		exact, like, what = "", glob.Like(name), matching(name)
	} else if err := fence.ValidateResource(name); err != nil {
		return err
	}
	var known bool
	var beside []string
	sql := strings.ReplaceAll(traces, "{{schema}}", pgx.Identifier{d.schema}.Sanitize())
	err := record.ReadTx(ctx, db.Pool, "", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sql, exact, like, glob.Prefix(name)).Scan(&known, &beside)
	})
	if err != nil || known {
		return err
	}
	err = fmt.Errorf("no resource%s in schema %s", what, d.schema)
	if len(beside) > 0 {
		err = fmt.Errorf("%w; beside it are %s", err, strings.Join(beside, ", "))
	}
	return &cli.ExitError{Code: cli.ExitInconclusive, Err: err}
}

func ping(ctx context.Context, pool *pgxpool.Pool) error {
	reach, stop := context.WithTimeout(ctx, reachTimeout)
	defer stop()
	err := pool.Ping(reach)
	if err != nil && ctx.Err() == nil && reach.Err() != nil {
		return fmt.Errorf("the database gave no answer within %v: %w", reachTimeout, err)
	}
	return err
}

const (
	reachTimeout = 30 * time.Second
	closeGrace   = time.Second
)

// closeSoon doesn't make a user wait after an interrupt: pgx takes 15 s to close a connection to a server that no
// longer answers. The end of the process closes it anyway.
func closeSoon(pool *pgxpool.Pool) {
	closed, done := context.WithTimeout(context.Background(), closeGrace)
	go func() {
		defer done()
		pool.Close()
	}()
	<-closed.Done()
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

func (d *databaseFlags) explain(err error) error {
	if errors.As(err, new(*pgconn.ConnectError)) {
		err = oneline.Error(err)
	}
	if advice := d.advice(err); advice != "" {
		err = fmt.Errorf("%w\n%s", err, advice)
	}
	return cli.NotReady(err)
}

func (d *databaseFlags) advice(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		switch code := answer.Code; {
		case strings.HasPrefix(code, "28"): // invalid authorization
			return "Check user and password: --database-url (FENCEKIT_DATABASE_URL), PGUSER, PGPASSWORD, ~/.pgpass."
		case code == "3D000": // no such database
			return "Create the database first, or correct --database-url (FENCEKIT_DATABASE_URL) or PGDATABASE."
		case code == "3F000" && strings.Contains(answer.Message, d.schema), // no such schema; other languages have other quotes
			(code == "42883" || code == "42P01") && strings.Contains(answer.Message, d.schema+"."): // no such function, table
			return "The schema is missing, or older than this fencectl: run \"fencectl migrate up\", or correct --schema."
		case code == "42501": // insufficient privilege
			return "Connect as another role; the command's --help says which one it needs."
		}
		return ""
	}
	if errors.As(err, new(*net.OpError)) || errors.As(err, new(*net.DNSError)) {
		return "Check that Postgres runs, and where: --database-url (FENCEKIT_DATABASE_URL), PGHOST, PGPORT."
	}
	return ""
}
