package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/oneline"
	"github.com/fencekit/fencekit/storage/postgres"
)

// target is what one pass through the checks examines: etcd alone, or a database and, if it is
// given, the etcd that belongs to it.
type target struct {
	etcd *etcdServer
	db   *database
}

// need says what a check looks at, and so for which targets it is made.
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
	run   func(context.Context, *target) ([]Finding, error)
}

// checks are all checks, in order.
var checks = []check{
	{"whether etcd grants locks", needsEtcd, "", checkGrants},
	{"etcd's members", needsEtcd, "", checkMembers},
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
	{"the timeline", needsSchema, readerOrOwner, checkTimeline},
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

// withoutEpoch reports whether a check is left out because etcd's key holds no epoch.
func (c check) withoutEpoch(s *target) bool { return c.needs == needsBoth && c.in(s) && s.etcd.noEpoch }

// run makes the checks that belong to a target.
func (r *Report) run(ctx context.Context, all []check, s *target) {
	var left, hidden []string
	var rows *postgres.HiddenRowsError
	for _, c := range all {
		if c.needs == needsBoth && s.db != nil && s.etcd != nil {
			<-s.etcd.examined
		}
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
		switch {
		case errors.As(err, &rows):
			hidden = append(hidden, c.about)
		case err != nil:
			r.Findings = append(r.Findings, c.failed(s, err))
		}
	}
	if len(hidden) > 0 {
		r.Findings = append(r.Findings, notChecked.found(s.server(), "can't examine "+strings.Join(hidden, "; ")+": "+rows.Error(), "advice", "See schema-changed, then run fencectl doctor again."))
	}
	if len(left) > 0 {
		r.Findings = append(r.Findings, notChecked.found(s.server(), "can't examine "+strings.Join(left, "; ")+": the epoch key in etcd holds no epoch",
			"advice", "See epoch-key-invalid, then run fencectl doctor again."))
	}
}

// outOfMemory is the SQLSTATE of a full lock table, too.
const outOfMemory = "53200"

// failed is the finding that a check could not be made.
func (c check) failed(s *target, err error) Finding {
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

// server names the target's server.
func (s *target) server() string {
	if s.db != nil {
		return s.db.Name
	}
	return etcdName
}
