package doctor

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"regexp"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/oneline"
	"github.com/fencekit/fencekit/internal/schemadef"
	"github.com/fencekit/fencekit/storage/postgres"
)

// need says what a check looks at, and so for which targets it is made.
type need int

const (
	needsEtcd     need = iota // etcd; the first such check finds out whether it answers
	needsGrants               // an etcd that would grant a lock, or fails to for want of space or of an epoch alone
	needsDatabase             // a database, answering or not; the first such check finds out
	needsServer               // the server of a database
	needsSchema               // and its schema
	needsBoth                 // and etcd
)

type check struct {
	about string // completes "can't examine ..."
	needs need
	role  string // what it takes to see it, for the advice
	run   func(context.Context, *target) ([]Finding, error)
}

var checks = []check{
	{"whether etcd grants locks", needsEtcd, "", checkGrants},
	{"etcd's authentication", needsEtcd, "", checkAuth},
	{"lock keys", needsGrants, "", keys("/locks/", "lock-without-lease")},
	{"void keys", needsGrants, "", keys("/void/", "void-without-lease")},

	{"the server", needsDatabase, "", checkServer},
	{"the server's settings", needsServer, "", query("settings")},
	{"standbys", needsServer, "pg_monitor", query("standbys")},
	{"subscriptions", needsServer, "", query("subscriptions")},
	{"open and prepared transactions", needsServer, "", checkTransactions},
	{"the version of the schema", needsServer, readerOrOwner, checkMigrations},

	{"the tables, triggers and functions", needsSchema, "", checkDefinitions},
	{"protected tables", needsSchema, readerOrOwner, query("protected")},
	{"the settings", needsSchema, readerOrOwner, checkSetting},
	{"the timeline", needsSchema, readerOrOwner, query("timeline")},
	{"roles", needsSchema, "", query("roles")},
	{"other schemas", needsSchema, "a role that may read the other schema", checkOtherSchemas},
	{"the size of the history", needsSchema, readerOrOwner, query("history_size")},
	{"keys of guard.Once", needsSchema, readerOrOwner, query("once_keys")},
	{"rejections", needsSchema, readerOrOwner, query("rejections")},
	{"sequences", needsSchema, readerOrOwner, query("sequences")},
	{"sessions of locks", needsSchema, readerOrOwner, query("lock_sessions")},

	{"etcd's epoch and the database's", needsBoth, readerOrOwner, checkEpochs},
	{"etcd's revision and the fences", needsBoth, readerOrOwner, checkTokens},
	{"holders and fences", needsBoth, readerOrOwner, checkHolders},
}

const readerOrOwner = "the reader role (fencectl migrate up --reader-role ROLE) or the owner of the schema"

// query is a check by a file of sql: each row is a finding, by its column finding, and has the facts.
func query(name string) func(context.Context, *target) ([]Finding, error) {
	sql := statement(name)
	return func(ctx context.Context, s *target) (found []Finding, err error) {
		args, err := rights()
		if err != nil {
			return nil, err
		}
		args = maps.Clone(args)
		args["held"] = s.db.hidden
		args["schema"], args["open"], args["history_bytes"] = s.db.Schema, s.db.limits.Open.Seconds(), s.db.limits.HistoryBytes
		seen, err := rows(ctx, s.db, pgx.RowToMap, sql, args)
		for _, f := range seen {
			found = append(found, s.db.found(f["finding"].(string), f))
		}
		return found, err
	}
}

// checkTransactions looks a second time, a second later, where this role doesn't see how old a transaction is: most
// that have locks are guarded and have ended by then.
func checkTransactions(ctx context.Context, s *target) ([]Finding, error) {
	const unseen = `select array_agg(distinct virtualtransaction) from pg_locks l join pg_stat_activity a using (pid) where a.backend_type is null and a.state is null`
	if err := s.db.row(ctx, unseen, nil, &s.db.hidden); err != nil {
		return nil, err
	}
	if s.db.hidden != nil {
		if err := s.db.row(ctx, "select pg_sleep(1)::text", nil, new(string)); err != nil {
			return nil, err
		}
	}
	return query("transactions")(ctx, s)
}

var (
	grantExecute = regexp.MustCompile(`grant execute on routine (.*) to`)
	grantSelect  = regexp.MustCompile(`grant select on (.*) to`)
)

// rights are arguments of statements: what the schema has, and what an app role is granted of it.
var rights = sync.OnceValues(func() (pgx.NamedArgs, error) {
	relations, err := schemadef.Relations()
	if err != nil {
		return nil, err
	}
	app, err := postgres.RolesSQL("", postgres.Roles{App: "app"})
	if err != nil {
		return nil, err
	}
	reader, err := postgres.RolesSQL("", postgres.Roles{Reader: "reader"})
	if err != nil {
		return nil, err
	}
	return pgx.NamedArgs{
		"relations": relations, "routines": granted(grantExecute, app), "tables": granted(grantSelect, app), "reader_routines": granted(grantExecute, reader),
	}, nil
})

func granted(grant *regexp.Regexp, sql string) (names []string) {
	for qualified := range strings.SplitSeq(grant.FindStringSubmatch(sql)[1], ", ") {
		_, name, _ := strings.Cut(qualified, ".")
		names = append(names, name)
	}
	return names
}

// in reports whether a check is to be made for a target, as far as earlier checks have found.
func (c check) in(s *target) bool {
	switch c.needs {
	case needsEtcd:
		return s.db == nil
	case needsGrants:
		return s.db == nil && s.etcd.readable
	case needsDatabase:
		return s.db != nil
	case needsServer:
		return s.db != nil && s.db.answers
	case needsSchema:
		return s.db != nil && s.db.migrated
	default:
		return s.db != nil && s.db.migrated && s.etcd != nil && s.etcd.readable
	}
}

// run makes the checks that belong to a target. Checks that fail alike make one finding.
func (r *Report) run(ctx context.Context, s *target) {
	type failure struct{ cause, advice string }
	failed := map[failure][]string{}
	var order []failure
	var hidden *postgres.HiddenRowsError // the first one: each names the table that was read
	for _, c := range checks {
		if c.needs == needsBoth && s.db != nil && s.etcd != nil {
			<-s.etcd.examined
		}
		if !c.in(s) {
			continue
		}
		f := failure{"the epoch key in etcd holds no epoch", "See epoch-key-invalid, then run fencectl doctor again."}
		if c.needs != needsBoth || !s.etcd.noEpoch {
			r.Checks++
			found, err := c.run(ctx, s)
			r.Findings = append(r.Findings, found...)
			if err == nil {
				continue
			}
			if rows := new(postgres.HiddenRowsError); errors.As(err, &rows) {
				hidden = cmp.Or(hidden, rows)
				err = hidden
			}
			f = failure{oneline.Error(err).Error(), c.advice(err)}
		}
		if failed[f] == nil {
			order = append(order, f)
		}
		failed[f] = append(failed[f], c.about)
	}
	for _, f := range order {
		about := facts{"about": strings.Join(failed[f], "; "), "cause": f.cause, "advice": f.advice}
		r.Findings = append(r.Findings, s.found("not-checked", about))
	}
}

func (c check) advice(err error) string {
	var answer *pgconn.PgError
	switch {
	case errors.As(err, new(*postgres.HiddenRowsError)):
		return "See schema-changed, then run fencectl doctor again."
	case !errors.As(err, &answer) || answer.Code != "42501":
		return "See the error; run fencectl doctor again, with a longer --timeout if it ran out of time."
	case c.role != "":
		return "Connect as " + c.role + "."
	}
	return "Connect as the owner of the schema."
}
