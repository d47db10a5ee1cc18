package review

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/audit"
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

	lacks string
}

// maxRows bounds each list of a Report.
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

// Report reads a period, and verifies the whole history of its resources. It needs a pool with two
// connections.
func (r *Reader) Report(ctx context.Context, p Period) (*Report, error) {
	report := &Report{
		From: p.From.UTC(), To: p.To.UTC(), Resources: p.Resources,
		Pruned: []PrunedResource{}, Claims: []Claim{}, Rejections: []Rejected{}, Tenures: []Tenure{}, Voids: []Void{}, Unguarded: []Unguarded{}, Unprotected: []string{},
	}
	if err := r.readUntil(ctx, report); err != nil {
		return nil, err
	}
	if report.begun() {
		if err := r.readPeriod(ctx, report); err != nil {
			return nil, err
		}
	}
	var err error
	if report.Verified, err = r.history.Verify(ctx, audit.VerifyOptions{Resources: p.Resources}); err != nil {
		return nil, err
	}
	report.conclude()
	return report, nil
}

// readPeriod reads what is recorded of the part of the period that had passed.
func (r *Reader) readPeriod(ctx context.Context, report *Report) error {
	for _, read := range []func(context.Context, *Report) error{r.readEntries, r.readRejections, r.readPruned, r.readBegins, r.readUnguarded, r.readUnprotected} {
		if err := read(ctx, report); err != nil {
			return err
		}
	}
	return nil
}

// readRejections reads the rejections of the period.
func (r *Reader) readRejections(ctx context.Context, report *Report) error {
	for rejection, err := range r.history.Rejections(ctx, audit.Filter{Resources: report.Resources, Since: report.From, Until: report.Until}) {
		if err != nil {
			return err
		}
		c := &report.Counts
		c.Records++
		c.AttemptsMax += rejection.Count
		c.AttemptsMin += report.certain(rejection)
		report.Rejections = appendUpTo(report.Rejections, Rejected{rejection.Grant.Resource, *rejectionOf(rejection)})
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

// appendUpTo appends one to a list of a Report while there is room.
func appendUpTo[T any](list []T, one T) []T {
	if len(list) < maxRows {
		list = append(list, one)
	}
	return list
}
