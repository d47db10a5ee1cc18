package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
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

// Examine examines etcd, if it isn't nil, and the databases, all at once. If ctx ends, the checks that are
// left are reported as not made.
func Examine(ctx context.Context, etcd *Etcd, databases []Database, limits Limits) Report {
	limits = limits.withDefaults()
	reports := make([]Report, 1+len(databases))
	var all sync.WaitGroup
	var service *etcdServer
	if etcd != nil {
		service = newEtcdServer(*etcd, limits)
		defer service.close()
		all.Go(func() {
			defer close(service.examined)
			reports[0].run(ctx, checks, &target{etcd: service})
		})
	}
	examined := make([]*database, len(databases))
	for i, d := range databases {
		examined[i] = newDatabase(d, limits)
		all.Go(func() { reports[1+i].run(ctx, checks, &target{etcd: service, db: examined[i]}) })
	}
	all.Wait()
	var r Report
	for _, one := range reports {
		r.Findings, r.Checks = append(r.Findings, one.Findings...), r.Checks+one.Checks
	}
	r.Findings = append(r.Findings, checkShards(examined)...)
	sortFindings(r.Findings)
	return r
}

// Ignore removes the findings with these IDs.
func (r *Report) Ignore(ids []string) {
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return slices.Contains(ids, f.ID) })
}

// Merge makes one finding of those that differ in their server alone, as where databases share a server.
func (r *Report) Merge() {
	var merged []Finding
	for _, f := range r.Findings {
		same := func(other Finding) bool {
			return other.ID == f.ID && other.Seen == f.Seen && other.Fix == f.Fix && slices.Equal(other.Run, f.Run)
		}
		if i := slices.IndexFunc(merged, same); i >= 0 {
			merged[i].Server += ", " + f.Server
		} else {
			merged = append(merged, f)
		}
	}
	r.Findings = merged
}

// Known reports whether a kind has this ID.
func Known(id string) bool {
	return slices.ContainsFunc(Catalog, func(k Kind) bool { return k.ID == id })
}

// joined separates names by commas, for a message.
func joined(names []string) string { return strings.Join(names, ", ") }
