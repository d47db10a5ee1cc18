package review

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// Period is what a Report is about: from From, and before To, by the database's clock.
type Period struct {
	From, To  time.Time
	Resources string // a pattern of names; "" means all
}

// Verdict is what a Report comes to.
type Verdict string

// The verdicts.
const (
	VerdictClean Verdict = "clean" // all of the period is there, and it verifies
	// VerdictSoFar is as VerdictClean, of a period that has begun and not ended.
	VerdictSoFar    Verdict = "clean so far"
	VerdictViolated Verdict = "violated" // the history says what no honest one can
	// VerdictUnguarded means that writes without a guard were recorded.
	VerdictUnguarded Verdict = "unguarded"
	// VerdictIncomplete means that there is no answer: Report.Lacks says why.
	VerdictIncomplete Verdict = "incomplete"
)

// Report says who held what in a period, and whether anything was written without the lock.
// Tenures has the longest; the other lists have the first maxRows. The counts cover everything.
type Report struct {
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Resources string    `json:"resources"` // the pattern
	// Until is where what the report covers ends: at To, or when it was asked for, if that was
	// earlier.
	Until time.Time `json:"until"`
	// Begins is when the record of the resources begins, nil if that was not read or there is none.
	Begins *time.Time `json:"record_begins_at,omitempty"`

	Verdict    Verdict          `json:"verdict"`
	Answer     string           `json:"answer"`
	Counts     Counts           `json:"counts"`
	Verified   audit.Report     `json:"verified"`
	Pruned     []PrunedResource `json:"pruned"`     // within the period, or possibly so
	Claims     []Claim          `json:"claims"`     // grants and hand-overs
	Rejections []Rejected       `json:"rejections"` // that may lie within the period
	Tenures    []Tenure         `json:"tenures"`    // the longest
	Voids      []Void           `json:"voids"`
	Unguarded  []Unguarded      `json:"unguarded"`
	// Unprotected are the tables that weren't protected all the time: writes without a guard may have
	// left no trace in them.
	Unprotected []string `json:"unprotected_tables"`

	// Lacks says in a few words why there is no answer, "" if there is one.
	Lacks string `json:"-"`
}

const maxRows = 1000

// Counts count what lies within the period.
type Counts struct {
	Resources        int64 `json:"resources"` // with an entry in the period
	ResourcesWritten int64 `json:"resources_written"`
	Writes           int64 `json:"writes"`
	Operations       int64 `json:"operations"` // that the writes recorded
	Claims           int64 `json:"claims"`
	Voids            int64 `json:"voids"`
	Records          int64 `json:"rejection_records"`
	// Attempts were rejected: a record that also counts some outside of the period makes it a range.
	AttemptsMin int64 `json:"rejected_attempts_min"`
	AttemptsMax int64 `json:"rejected_attempts_max"`
	Pruned      int64 `json:"pruned_resources"`
	// Unguarded writes: one for each transaction and resource. UnguardedKinds are those of the list.
	Unguarded      int64 `json:"unguarded_writes"`
	UnguardedKinds int64 `json:"unguarded_kinds"`
}

// PrunedResource is a resource of which an entry was pruned that is not from before the period.
type PrunedResource struct {
	Resource string `json:"resource"`
	Pruned
}

// Claim is a grant that took a resource over.
type Claim struct {
	Resource string    `json:"resource"`
	Position int64     `json:"position"`
	At       time.Time `json:"at"`
	Grant    Grant     `json:"grant"`
	Before   *Grant    `json:"before,omitempty"` // which had it; nil if none had, or if that was pruned
}

// Rejected is a record of rejections.
type Rejected struct {
	Resource string `json:"resource"`
	Rejection
}

// Void is a COMMIT of unknown outcome that was ruled out.
type Void struct {
	Resource string    `json:"resource"`
	Position int64     `json:"position"`
	At       time.Time `json:"at"`
	Grant    Grant     `json:"grant"`
}

// Report reads a period, and verifies the whole history of its resources.
func (r *Reader) Report(ctx context.Context, p Period) (*Report, error) {
	report := &Report{
		From: p.From.UTC(), To: p.To.UTC(), Resources: p.Resources,
		Pruned: []PrunedResource{}, Claims: []Claim{}, Rejections: []Rejected{}, Tenures: []Tenure{}, Voids: []Void{}, Unguarded: []Unguarded{}, Unprotected: []string{},
	}
	if err := r.readUntil(ctx, report); err != nil {
		return nil, err
	}
	if report.Begun() {
		if err := r.readPeriod(ctx, report); err != nil {
			return nil, err
		}
	}
	var err error
	if report.Verified, err = r.history.Verify(ctx, audit.VerifyOptions{Resources: p.Resources}); err != nil {
		return nil, err
	}
	report.conclude()
	report.Answer, err = sentence("answer "+cmp.Or(report.Lacks, string(report.Verdict)), report)
	return report, err
}

func (r *Reader) readPeriod(ctx context.Context, report *Report) error {
	for _, read := range []func(context.Context, *Report) error{r.readEntries, r.readRejections, r.readRest} {
		if err := read(ctx, report); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) readRejections(ctx context.Context, report *Report) error {
	for rejection, err := range r.history.Rejections(ctx, audit.Filter{Resources: report.Resources, Since: report.From, Until: report.Until}) {
		if err != nil {
			return err
		}
		c := &report.Counts
		c.Records++
		c.AttemptsMax += rejection.Count
		c.AttemptsMin += report.certain(rejection)
		report.Rejections = appendUpTo(report.Rejections, Rejected{rejection.Grant.Resource, rejectionOf(rejection)})
	}
	return nil
}

// certain returns how many of a record's rejections lie within the period whatever the times
// of those between its first and its last.
func (report *Report) certain(r audit.Rejection) int64 {
	first := !r.First.Before(report.From) && r.First.Before(report.Until)
	last := !r.Last.Before(report.From) && r.Last.Before(report.Until)
	switch {
	case first && last:
		return r.Count
	case first || last:
		return 1
	}
	return 0
}

func appendUpTo[T any](list []T, one T) []T {
	if len(list) < maxRows {
		list = append(list, one)
	}
	return list
}

func (r *Reader) readUntil(ctx context.Context, report *Report) error {
	var asked time.Time
	return r.query(ctx, record.ReadTx, "select now()", nil, []any{&asked}, func() {
		report.Until = report.To
		if asked.Before(report.Until) {
			report.Until = asked.UTC()
		}
	})
}

// Unguarded are writes to a protected table that audit mode let through without a guard, all of
// the same kind, for one resource, by one role and application.
type Unguarded struct {
	Table       string    `json:"table"`
	Resource    string    `json:"resource,omitempty"` // "" if the rows have none, or it isn't known
	Kind        string    `json:"kind"`
	Role        string    `json:"role"`
	Application string    `json:"application"`
	Records     int64     `json:"records"` // one for each transaction and resource
	First       time.Time `json:"first_at"`
	Last        time.Time `json:"last_at"`
}

// unguardedQuery reads unguarded writes. One whose resource isn't known counts whatever the pattern.
const unguardedQuery = `
	select relation::text, coalesce(resource, ''), kind, role, application, count(*), min(at), max(at)
	  from @unguarded_write
	 where at >= $1 and at < $2 and (resource is null or resource like $3)
	 group by 1, 2, 3, 4, 5 order by min(at), 1, 2, 3, 4, 5`

// unprotectedQuery lists the tables of the database that weren't protected from $1 on, or whose
// unguarded writes aren't recorded since there is no room. It leaves out Fencekit's own, those of
// extensions and partitions.
const unprotectedQuery = `
	select c.oid::regclass::text
	  from pg_class c
	  join pg_namespace n on n.oid = c.relnamespace
	 where c.relkind in ('r', 'p') and c.relpersistence <> 't' and not c.relispartition
	   and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
	   and not exists (select from pg_class own where own.relnamespace = n.oid and own.relname = 'pending_write')
	   and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
	   and not exists (select from @protected_table t cross join lateral @protected_members(to_regclass(t."table")) m
	                    where m.member = c.oid and t.problem is null and t.at <= $1
	                      and (t.mode = 'enforce' or pg_relation_size('@unguarded_write') < 16777216))
	 order by 1`

const beginsQuery = `
	select least((select min(e.at) from @resource f left join @checkpoint c on c.resource = f.id
	                join @history e on e.resource = f.id and e.seq = coalesce(c.first, 1) where f.name like $1),
	             (select min(first_at) from @rejection where resource like $1))`

// readRest reads what was pruned that may be of the period, when the record begins, the unguarded writes, and in
// which tables such writes may have left no trace.
func (r *Reader) readRest(ctx context.Context, report *Report) error {
	names := glob.Like(report.Resources)
	err := r.pruned(ctx, "f.name like $1 and c.latest >= $2", []any{names, report.From}, func(p PrunedResource) {
		report.Counts.Pruned++
		report.Pruned = appendUpTo(report.Pruned, p)
	})
	if err != nil {
		return err
	}
	if err := r.query(ctx, record.ReadTx, beginsQuery, []any{names}, []any{&report.Begins}, func() {}); err != nil {
		return err
	}
	if report.Begins != nil {
		*report.Begins = report.Begins.UTC()
	}
	var u Unguarded
	places := []any{&u.Table, &u.Resource, &u.Kind, &u.Role, &u.Application, &u.Records, &u.First, &u.Last}
	err = r.query(ctx, record.ReadNamedTx, unguardedQuery, []any{report.From, report.Until, names}, places, func() {
		u.First, u.Last = u.First.UTC(), u.Last.UTC()
		report.Counts.Unguarded += u.Records
		report.Counts.UnguardedKinds++
		report.Unguarded = appendUpTo(report.Unguarded, u)
	})
	if err != nil {
		return err
	}
	var table string
	return r.query(ctx, record.ReadNamedTx, unprotectedQuery, []any{report.From}, []any{&table}, func() { report.Unprotected = append(report.Unprotected, table) })
}

// What a Report can lack.
const (
	lacksResources = "no resource matches"
	lacksTime      = "the period had not begun"
	lacksPruned    = "entries of the period may have been pruned"
	lacksRecord    = "the record begins after the period"
)

func (report *Report) conclude() {
	report.Verdict = VerdictIncomplete
	switch c := report.Counts; {
	case report.Verified.TotalFindings > 0:
		report.Verdict = VerdictViolated
	case c.Unguarded > 0:
		report.Verdict = VerdictUnguarded
	case report.Unknown():
		report.Lacks = lacksResources
	case !report.Begun():
		report.Lacks = lacksTime
	case c.Pruned > 0:
		report.Lacks = lacksPruned
	case report.Begins != nil && !report.Begins.Before(report.Until):
		report.Lacks = lacksRecord
	case report.Ended():
		report.Verdict = VerdictClean
	default:
		report.Verdict = VerdictSoFar
	}
}

// Unknown reports whether there is no record of any resource that matches.
func (report *Report) Unknown() bool {
	return report.Verified.Resources == 0 && report.Verified.Rejections == 0 && report.Verified.TotalFindings == 0
}

// Begun reports whether a part of the period had passed.
func (report *Report) Begun() bool { return report.From.Before(report.Until) }

// Ended reports whether all of the period had passed.
func (report *Report) Ended() bool { return report.Until.Equal(report.To) }

// Tables names the tables with unguarded writes.
func (report *Report) Tables() (names []string) {
	for _, u := range report.Unguarded {
		if !slices.Contains(names, u.Table) {
			names = append(names, u.Table)
		}
	}
	return names
}
