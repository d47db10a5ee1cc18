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
// Tenures has the ten longest; the other lists have the first 1,000. The counts cover everything.
type Report struct {
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Resources string    `json:"resources"` // the pattern
	// Until is where what the report covers ends: at To, or when it was asked for, if that was
	// earlier.
	Until time.Time `json:"until"`
	// Begins is when the record of the resources begins, nil if there is none.
	Begins *time.Time `json:"record_begins_at,omitempty"`

	Verdict    Verdict      `json:"verdict"`
	Answer     string       `json:"answer"`
	Counts     Counts       `json:"counts"`
	Verified   audit.Report `json:"verified"`
	Pruned     []Pruned     `json:"pruned"`     // within the period, or possibly so
	Claims     []Claim      `json:"claims"`     // grants and hand-overs
	Rejections []Rejection  `json:"rejections"` // that may lie within the period
	Tenures    []Tenure     `json:"tenures"`    // the longest
	Voids      []Claim      `json:"voids"`
	Unguarded  []Unguarded  `json:"unguarded"`
	// Unprotected are the tables that weren't protected all the time: writes without a guard may have
	// left no trace in them.
	Unprotected []string `json:"unprotected_tables"`

	// Lacks says in a few words why there is no answer, "" if there is one.
	Lacks string `json:"-"`
}

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

// Pruned says where the history of a resource begins, if entries before that were pruned.
type Pruned struct {
	Resource string    `json:"resource"`
	First    int64     `json:"first_position"`
	At       time.Time `json:"first_at"` // of the entry there
	// Claim is the position of an earlier claim that the prune kept, since First is of its grant.
	Claim int64 `json:"claim_position,omitempty"`
}

// Claim is a grant that took a resource over, or of which a COMMIT of unknown outcome was ruled out.
type Claim struct {
	Resource string    `json:"resource"`
	Position int64     `json:"position"`
	At       time.Time `json:"at"`
	Grant    Grant     `json:"grant"`
	Before   *Grant    `json:"before,omitempty"` // which had it; nil if none had, or if that was pruned
}

// Tenure is a grant's time with a resource. It may have been released at any time after the last write:
// the record doesn't say.
type Tenure struct {
	Resource  string     `json:"resource"`
	Grant     Grant      `json:"grant"`
	ClaimedAt *time.Time `json:"claimed_at,omitempty"` // nil if the claim was pruned
	EndedAt   *time.Time `json:"ended_at,omitempty"`   // by the next claim; nil if none came in the covered time
	LastWrite *time.Time `json:"last_write_at,omitempty"`
	Writes    int64      `json:"writes"`  // in the period
	Seconds   float64    `json:"seconds"` // in the covered time, from the claim to the last write
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

// Report reads a period, and verifies the whole history of its resources.
func (r *Reader) Report(ctx context.Context, p Period) (*Report, error) {
	// The server's times have microseconds.
	report := &Report{From: p.From.UTC().Truncate(time.Microsecond), To: p.To.UTC().Truncate(time.Microsecond), Resources: p.Resources}
	names := glob.Like(p.Resources)
	sql := "with all_rejections as (" + statement("rejection") + "), all_pruned as (" + statement("pruned") + "), " + statement("report")
	if err := r.read(ctx, record.ReadTx, report, sql, report.From, report.To, names); err != nil {
		return nil, err
	}
	// Tables have the names by which the session knows them.
	if err := r.read(ctx, record.ReadNamedTx, report, statement("tables"), report.From, report.Until, names); err != nil {
		return nil, err
	}
	var err error
	if report.Verified, err = r.history.Verify(ctx, audit.VerifyOptions{Resources: p.Resources}); err != nil {
		return nil, err
	}
	report.conclude()
	report.Answer, err = sentence("answer "+cmp.Or(report.Lacks, string(report.Verdict)), report)
	return report, err
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
