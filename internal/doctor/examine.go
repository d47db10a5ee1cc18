package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
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
	Name   string        // for people, without a password
	Pool   *pgxpool.Pool // nil if there is none because of Err
	Err    error         // why there is no pool
	Schema string
}

// Limits bound the examination. Zero fields mean the defaults.
type Limits struct {
	Request      time.Duration // of each request to etcd. Default 5 s
	Statement    time.Duration // of each SQL statement. Default 10 s
	Scan         time.Duration // of the comparison of fences and history in each database, and of reading keys of etcd. Default 20 s
	CountEntries int64         // longer histories are not counted. Default 2,000,000
	HistoryBytes int64         // above which a history without a policy is reported. Default 10 GB
	Open         time.Duration // the age from which an open transaction is reported. Default 1 minute
}

func (l Limits) withDefaults() Limits {
	l.Request = cmp.Or(l.Request, 5*time.Second)
	l.Statement = cmp.Or(l.Statement, 10*time.Second)
	l.Scan = cmp.Or(l.Scan, 20*time.Second)
	l.CountEntries = cmp.Or(l.CountEntries, 2_000_000)
	l.HistoryBytes = cmp.Or(l.HistoryBytes, 10_000_000_000)
	l.Open = cmp.Or(l.Open, time.Minute)
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
	var service *etcdServer
	if etcd != nil {
		service = newEtcdServer(*etcd, limits)
		defer service.close()
		r.run(ctx, checks, &target{etcd: service})
	}
	var examined []*database
	for _, d := range databases {
		examined = append(examined, newDatabase(d, limits))
		r.run(ctx, checks, &target{etcd: service, db: examined[len(examined)-1]})
	}
	r.Findings = append(r.Findings, checkShards(examined)...)
	sortFindings(r.Findings)
	return r
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
