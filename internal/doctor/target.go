package doctor

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/record"
)

// Etcd is the etcd to examine.
type Etcd struct {
	Client *clientv3.Client // nil if there is none because of Err
	Err    error            // why there is no client
	Prefix string           // etcd.Config.Prefix
	// CertificateAuth means that the client has a certificate.
	CertificateAuth bool
}

// Database is a database to examine.
type Database struct {
	Name   string        // for people, without a password
	Pool   *pgxpool.Pool // nil if there is none because of Err
	Err    error         // why there is no pool
	Schema string
}

// Limits bound the examination. Zero fields mean the defaults.
type Limits struct {
	Request      time.Duration // of each request to etcd. Default 5 s
	Statement    time.Duration // of each SQL statement. Default 10 s
	Scan         time.Duration // of reading keys of etcd. Default 20 s
	HistoryBytes int64         // above which a history without a policy is reported. Default 10 GB
	Open         time.Duration // the age from which an open transaction is reported. Default 1 minute
}

func (l Limits) withDefaults() Limits {
	l.Request = cmp.Or(l.Request, 5*time.Second)
	l.Statement = cmp.Or(l.Statement, 10*time.Second)
	l.Scan = cmp.Or(l.Scan, 20*time.Second)
	l.HistoryBytes = cmp.Or(l.HistoryBytes, 10_000_000_000)
	l.Open = cmp.Or(l.Open, time.Minute)
	return l
}

// target is what one pass through the checks examines: etcd alone, or a database and, if it is
// given, the etcd that belongs to it.
type target struct {
	etcd *etcdServer
	db   *database
}

const etcdName = "etcd"

func (s *target) found(id string, f facts) Finding {
	if s.db != nil {
		return s.db.found(id, f)
	}
	return s.etcd.found(id, f)
}

type etcdServer struct {
	Etcd
	limits    Limits
	inspector *inspect.Inspector
	locker    *etcd.Locker
	readable  bool          // keys can be read
	silent    bool          // no majority answers
	noEpoch   bool          // the epoch key holds no epoch
	examined  chan struct{} // closed when the checks of etcd alone were made
}

func (l *etcdServer) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.limits.Request)
}

func (l *etcdServer) found(id string, f facts) Finding {
	f["prefix"] = l.Prefix
	if l.Client != nil {
		f["endpoints"] = strings.Join(l.Client.Endpoints(), ",")
	}
	return f.finding(id, etcdName)
}

func (l *etcdServer) close() {
	if l.locker != nil {
		ctx, cancel := l.within(context.Background())
		defer cancel()
		_ = l.locker.Close(ctx) // it has no session
	}
}

// database is a database under examination, and what the checks have learned of it.
type database struct {
	Database
	limits   Limits
	answers  bool
	migrated bool     // the schema has all migrations that this package knows
	newer    bool     // and later ones, so that its definitions can't be compared
	hidden   []string // transactions of other roles, whose age this role may not see
	shard    *string  // which shard it is, "" if none; nil if that could not be read
}

func (d *database) found(id string, f facts) Finding {
	f["schema"] = d.Schema
	return f.finding(id, d.Name)
}

func (d *database) fill(sql string) string {
	return strings.ReplaceAll(sql, "{schema}", pgx.Identifier{d.Schema}.Sanitize())
}

//go:embed sql/*.sql
var statements embed.FS

func statement(name string) string {
	text, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// read calls do in a read-only transaction, within the limits. The search_path is pg_catalog. So the names of
// tables that it reads have their schemas: an operator runs the printed commands with another search_path.
func (d *database) read(ctx context.Context, do func(pgx.Tx) error) error {
	limits := fmt.Sprintf("set local lock_timeout = 1000; set local idle_in_transaction_session_timeout = 0; set local statement_timeout = %d", d.limits.Statement.Milliseconds())
	return record.ReadTx(ctx, d.Pool, limits, do)
}

func rows[T any](ctx context.Context, d *database, to pgx.RowToFunc[T], sql string, args ...any) (all []T, err error) {
	err = d.read(ctx, func(tx pgx.Tx) error {
		got, err := tx.Query(ctx, d.fill(sql), args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(got, to)
		return err
	})
	return all, err
}

func (d *database) row(ctx context.Context, sql string, args []any, into ...any) error {
	return d.read(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, d.fill(sql), args...).Scan(into...) })
}
