package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/oneline"
)

// Etcd is the etcd to examine.
type Etcd struct {
	Client *clientv3.Client // nil if there is none because of Err
	Err    error            // why there is no client
	Prefix string           // etcd.Config.Prefix
	TTL    time.Duration    // etcd.Config.TTL
	// CertificateAuth means that the client has a certificate.
	CertificateAuth bool
}

// Database is a database to examine.
type Database struct {
	Name   string // for people, without a password
	Pool   *pgxpool.Pool
	Err    error // why there is no pool
	Schema string
}

// Limits bound the examination. Zero fields mean the defaults.
type Limits struct {
	Request      time.Duration // of each request to etcd. Default 5 s
	Statement    time.Duration // of each SQL statement. Default 10 s
	Scan         time.Duration // of the comparison of fences and history in each database, and of reading keys of etcd. Default 20 s
	CountEntries int64         // longer histories are not counted. Default 2,000,000
	HistoryBytes int64         // from where a history without a policy is reported. Default 10 GB
	Open         time.Duration // from when an open transaction is reported. Default 1 minute
}

func (l Limits) withDefaults() Limits {
	or := func(d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
	}
	or(&l.Request, 5*time.Second)
	or(&l.Statement, 10*time.Second)
	or(&l.Scan, 20*time.Second)
	or(&l.Open, time.Minute)
	if l.CountEntries == 0 {
		l.CountEntries = 2_000_000
	}
	if l.HistoryBytes == 0 {
		l.HistoryBytes = 10_000_000_000
	}
	return l
}

// Report is the outcome of an examination.
type Report struct {
	Findings []Finding // in the order of their severities
	Checks   int       // that were made, over all servers
}

// Examine examines etcd, if it isn't nil, and the databases, one after another. If ctx ends, the
// checks that are left are reported as not made.
func Examine(ctx context.Context, etcd *Etcd, databases []Database, limits Limits) Report {
	limits = limits.withDefaults()
	var r Report
	var lock *etcdServer
	if etcd != nil {
		lock = newEtcdServer(*etcd, limits)
		defer lock.close()
		r.make(ctx, checks, &scene{etcd: lock})
	}
	var examined []*database
	for _, d := range databases {
		examined = append(examined, newDatabase(d, limits))
		r.make(ctx, checks, &scene{etcd: lock, db: examined[len(examined)-1]})
	}
	r.Findings = append(r.Findings, checkShards(examined)...)
	sortFindings(r.Findings)
	return r
}

// scene is what one pass through the checks looks at: etcd alone, or a database and, if it is
// given, the etcd that belongs to it.
type scene struct {
	etcd *etcdServer
	db   *database
}

// need says what a check looks at, and so in which scenes it is made.
type need int

const (
	needsEtcd     need = iota // etcd; the first such check finds out whether it answers
	needsGrants               // an etcd that would grant a lock, or fails to for want of space or of an epoch alone
	needsServer               // the server of a database
	needsSchema               // and its schema
	needsBoth                 // and etcd
	needsDatabase             // a database, answering or not
)

// check is an entry of the table.
type check struct {
	about string // completes "can't examine ..."
	needs need
	role  string // what it takes to see it, for the advice
	run   func(context.Context, *scene) ([]Finding, error)
}

// checks are all checks, in order.
var checks = []check{
	{"etcd's members", needsEtcd, "", checkMembers},
	{"whether etcd grants locks", needsEtcd, "", checkGrants},
	{"etcd's alarms", needsEtcd, "", checkAlarms},
	{"etcd's authentication", needsEtcd, "", checkAuth},
	{"the time to live that etcd grants", needsGrants, "", checkTTL},
	{"lock keys", needsGrants, "", checkLockKeys},
	{"void keys", needsGrants, "", checkVoidKeys},

	{"the server", needsDatabase, "", checkServer},
	{"durability", needsServer, "", checkDurability},
	{"prepared transactions", needsServer, "", checkPrepared},
	{"transaction_timeout", needsServer, "", checkTimeouts},
	{"the lock table", needsServer, "", checkLockTable},
	{"standbys", needsServer, "pg_monitor", checkStandbys},
	{"subscriptions", needsServer, "", checkSubscriptions},

	{"the version of the schema", needsServer, readerOrOwner, checkMigrations},
	{"open transactions", needsSchema, "", checkOpenTransactions},
	{"the tables, triggers and functions", needsSchema, "", checkDefinitions},
	{"protected tables", needsSchema, readerOrOwner, checkProtected},
	{"the settings", needsSchema, readerOrOwner, checkSetting},
	{"roles", needsSchema, "", checkRoles},
	{"other schemas", needsSchema, "a role that may read the other schema", checkOtherSchemas},
	{"the size of the history", needsSchema, readerOrOwner, checkHistorySize},
	{"keys of guard.Once", needsSchema, readerOrOwner, checkOnceKeys},
	{"rejections", needsSchema, readerOrOwner, checkRejections},
	{"fences and their history", needsSchema, readerOrOwner, checkFences},

	{"etcd's epoch and the database's", needsBoth, readerOrOwner, checkEpochs},
	{"etcd's revision and the fences", needsBoth, readerOrOwner, checkTokens},
	{"holders and fences", needsBoth, readerOrOwner, checkHolders},
}

const readerOrOwner = "the reader role (fencectl migrate up --reader-role ROLE) or the owner of the schema"

// in reports whether a check is to be made in a scene, as far as earlier checks have found.
func (c check) in(s *scene) bool {
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

// withoutEpoch reports whether a check is left out because etcd's key holds no epoch.
func (c check) withoutEpoch(s *scene) bool { return c.needs == needsBoth && c.in(s) && s.etcd.noEpoch }

// make makes the checks that belong to a scene.
func (r *Report) make(ctx context.Context, all []check, s *scene) {
	var left []string
	for _, c := range all {
		if c.withoutEpoch(s) {
			left = append(left, c.about)
			continue
		}
		if !c.in(s) {
			continue
		}
		r.Checks++
		found, err := c.run(ctx, s)
		r.Findings = append(r.Findings, found...)
		if err != nil {
			r.Findings = append(r.Findings, c.failed(s, err))
		}
	}
	if len(left) > 0 {
		r.Findings = append(r.Findings, notChecked.found(s.server(), "can't examine "+strings.Join(left, "; ")+": the epoch key in etcd holds no epoch",
			"advice", "See epoch-key-invalid, then run fencectl doctor again."))
	}
}

// noRoom is SQLSTATE out_of_memory: that of a full lock table, too.
const noRoom = "53200"

// failed is the finding that a check could not be made.
func (c check) failed(s *scene, err error) Finding {
	var answer *pgconn.PgError
	errors.As(err, &answer)
	advice := "See the error; run fencectl doctor again, with a longer --timeout if it ran out of time."
	switch {
	case answer != nil && answer.Code == "42501" && c.role != "":
		advice = "Connect as " + c.role + "."
	case answer != nil && answer.Code == "42501":
		advice = "Connect as the owner of the schema."
	}
	return notChecked.found(s.server(), fmt.Sprintf("can't examine %s: %s", c.about, oneline.Error(err)), "advice", advice)
}

// server names the server that a scene is about.
func (s *scene) server() string {
	if s.db != nil {
		return s.db.Name
	}
	return etcdName
}

// Ignore removes the findings with these IDs.
func (r *Report) Ignore(ids []string) {
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return slices.Contains(ids, f.ID) })
}

// Known reports whether a kind has this ID.
func Known(id string) bool {
	return slices.ContainsFunc(Catalog, func(k Kind) bool { return k.ID == id })
}

// joined separates names by commas, for a message.
func joined(names []string) string { return strings.Join(names, ", ") }
