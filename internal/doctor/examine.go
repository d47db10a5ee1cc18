// Package doctor examines an installation of Fencekit: its etcd, its databases, and whether the two
// fit together. It is for this module's own use: "fencectl doctor".
//
// # Model
//
// The table checks lists all checks. Each reads one thing and returns what it has seen; many are a query in sql,
// each row of which is a finding. findings.txt has the rest of a finding. A server that doesn't answer, an etcd
// that grants no lock to the user and a schema that isn't migrated are findings; further checks of them are left out.
//
// # Invariants
//
//   - Nothing is changed. All SQL runs in read-only transactions.
//   - What could not be examined, also because a limit ended the check, is a finding (not-checked).
//   - No statement waits for a lock for longer than a second or runs for longer than
//     Limits.Statement.
//
// # What is not promised
//
// The examination is no audit: it reads no history, which "fencectl audit verify" compares with the fences. It can't see what only the services know, such as the settings of their etcd clients, and leaves what
// watches etcd and Postgres for any service to what does that: members, space, the server's table of locks.
package doctor

import (
	"context"
	"slices"
	"sync"
)

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
		service = &etcdServer{Etcd: *etcd, limits: limits, examined: make(chan struct{})}
		defer service.close()
		all.Go(func() {
			defer close(service.examined)
			reports[0].run(ctx, &target{etcd: service})
		})
	}
	examined := make([]*database, len(databases))
	for i, d := range databases {
		examined[i] = &database{Database: d, limits: limits}
		all.Go(func() { reports[1+i].run(ctx, &target{etcd: service, db: examined[i]}) })
	}
	all.Wait()
	r := Report{Findings: checkShards(examined)}
	for _, one := range reports {
		r.Findings, r.Checks = append(r.Findings, one.Findings...), r.Checks+one.Checks
	}
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.ID == "epoch-behind" || f.ID == "epoch-jump" }) {
		r.Ignore([]string{olderEpoch}) // which epoch is right is open
	}
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
