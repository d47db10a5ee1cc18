package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/storage"
)

// VerifyOptions are the options of a verification. The zero value verifies everything.
type VerifyOptions struct {
	// Resources is a pattern of names with * and ?; "" means all resources.
	Resources string
	// Known are heads that were recorded earlier, elsewhere. The history must still contain them.
	Known []Head
	// Receipts are those of guard.Receipt. Report.Receipts says what became of them, which is no finding.
	Receipts []storage.Receipt
}

// maxFindings bounds the lists of a Report.
const maxFindings = 1000

func (v VerifyOptions) begin() *verification {
	run := &verification{options: v, report: Report{Unproven: []string{}, Findings: []Finding{}, Unexplained: []Finding{}},
		matches: glob.Matcher(v.Resources), known: newKnownHeads(v.Known), proven: map[string]bool{}, unproven: map[string]bool{}}
	run.expectReceipts(v.Receipts)
	return run
}

// Report is the result of a verification.
type Report struct {
	// At is the time of the verified snapshot, by the database's clock; zero if no export says it.
	At time.Time `json:"at"`
	// These say how many were verified: fences with their histories, entries, records of rejections, kept
	// operations, and known heads.
	Resources  int64 `json:"resources"`
	Entries    int64 `json:"entries"`
	Rejections int64 `json:"rejections"`
	Operations int64 `json:"operations"`
	Heads      int64 `json:"heads"`
	// Unprovable counts what pruned entries would have proved: operations, which Operations includes, and known
	// heads, which Heads doesn't. That is no finding.
	Unprovable Unprovable `json:"unprovable"`
	// LeftOut counts the known heads of resources that the export leaves out.
	LeftOut int64 `json:"left_out"`
	// Unproven names the resources whose last known head couldn't be compared because entries were pruned.
	// Their remaining histories may have been replaced; VerifyExports with the prunes' exports can rule that
	// out. That is no finding.
	Unproven []string `json:"unproven"`
	// TotalFindings is how many findings there are, of which Findings has the first 1,000.
	TotalFindings int64     `json:"total_findings"`
	Findings      []Finding `json:"findings"`
	// TotalUnexplained is how many records of rejections name a claim that isn't in the history; Unexplained
	// has the first 1,000. They are no findings: the claim may have been pruned or lost, and any member of the app
	// role may add a record.
	TotalUnexplained int64     `json:"total_unexplained"`
	Unexplained      []Finding `json:"unexplained"`
	// Receipts has each entry of VerifyOptions.Receipts, in their order.
	Receipts []ReceiptResult `json:"receipts,omitempty"`
}

// Unprovable counts what can no longer be proved.
type Unprovable struct {
	Operations int64 `json:"operations"`
	Heads      int64 `json:"heads"`
}

// FindingKind is the kind of a finding.
type FindingKind string

// The kinds of findings.
const (
	FindingChangedEntry         FindingKind = "changed entry"       // the hash doesn't fit the entry and the one before it
	FindingMissingEntries       FindingKind = "missing entries"     // positions without an entry
	FindingRepeatedEntry        FindingKind = "repeated entry"      // a second entry at or before a position
	FindingMalformedEntry       FindingKind = "malformed entry"     // columns that no move of a fence writes together
	FindingTokensOutOfOrder     FindingKind = "tokens out of order" // a claim whose grant isn't higher than the one before
	FindingWrongClaim           FindingKind = "wrong claim"         // an entry that names a claim under which it can't have been made
	FindingWrongName            FindingKind = "wrong name"          // a claim that names another resource, or two fences of one name
	FindingWrongFence           FindingKind = "wrong fence"         // a fence that isn't as the last entry left it
	FindingMissingFence         FindingKind = "missing fence"       // entries, or a checkpoint, without a fence
	FindingWrongCheckpoint      FindingKind = "wrong checkpoint"    // a checkpoint that the entries don't fit
	FindingPrunedOnHold         FindingKind = "pruned on hold"      // a prune after the hold
	FindingUnfoundedOperation   FindingKind = "unfounded operation" // a kept operation whose write isn't in the history
	FindingLoweredMark          FindingKind = "lowered mark"        // the database's highest epoch or token is below what has claimed
	FindingRewrittenHistory     FindingKind = "rewritten history"   // another entry than the one that was known
	FindingOlderState           FindingKind = "older state"         // the history ends before an entry that was known
	FindingDamagedExport        FindingKind = "damaged export"
	FindingUnprotectedTable     FindingKind = "unprotected table"     // a table without what protects it from changes
	FindingUnexplainedRejection FindingKind = "unexplained rejection" // only in Report.Unexplained
)

// Finding is an inconsistency that Fencekit alone never causes.
type Finding struct {
	Kind     FindingKind `json:"kind"`
	Resource string      `json:"resource,omitempty"`              // its name, or its number if it has no name
	Seq      int64       `json:"seq,omitempty" column:"position"` // the position, if the finding has one
	Text     string      `json:"text"`                            // one sentence for a reader who doesn't program
	Expected string      `json:"expected,omitempty"`
	Found    string      `json:"found,omitempty"`
}

func (f Finding) String() string {
	switch {
	case f.Resource == "":
		return f.Text
	case f.Seq == 0:
		return f.Resource + ": " + f.Text
	}
	return fmt.Sprintf("%s, entry %d: %s", f.Resource, f.Seq, f.Text)
}

func (f Finding) compare(other Finding) int {
	return cmp.Or(cmp.Compare(f.Resource, other.Resource), cmp.Compare(f.Seq, other.Seq), cmp.Compare(f.Kind, other.Kind),
		cmp.Compare(f.Text, other.Text), cmp.Compare(f.Expected, other.Expected), cmp.Compare(f.Found, other.Found))
}

type verification struct {
	options  VerifyOptions
	report   Report
	matches  func(name string) bool // a name is asked for
	known    knownHeads
	ends     knownHeads       // of exports that were verified before; nil if they aren't asked for
	proven   map[string]bool  // the resources whose last known head was compared
	unproven map[string]bool  // the resources whose last known head was pruned
	receipts map[Cursor][]int // numbers of report.Receipts
}

func (v *verification) add(f Finding) {
	v.report.TotalFindings++
	v.report.Findings = upToMax(v.report.Findings, f)
}

// addUnexplained lists a rejection, which decides nothing.
func (v *verification) addUnexplained(f Finding) {
	v.report.TotalUnexplained++
	v.report.Unexplained = upToMax(v.report.Unexplained, f)
}

func upToMax(list []Finding, f Finding) []Finding {
	if len(list) < maxFindings {
		list = append(list, f)
	}
	return list
}

func (v *verification) end(at time.Time) Report {
	v.report.At = at
	for name := range v.unproven {
		if !v.proven[name] {
			v.report.Unproven = append(v.report.Unproven, name)
		}
	}
	slices.Sort(v.report.Unproven)
	slices.SortFunc(v.report.Findings, Finding.compare)
	slices.SortFunc(v.report.Unexplained, Finding.compare)
	return v.report
}
