package audit

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

// VerifyOptions are the options of a verification. The zero value verifies everything.
type VerifyOptions struct {
	// Resources is a pattern of names, in which * stands for any text and ? for any character;
	// "" means all resources.
	Resources string
	// Known are heads that were recorded earlier and kept where no one who can change the history
	// could change them. The history must still contain them.
	Known []Head
	// MaxFindings bounds Report.Findings. 0 means 1,000.
	MaxFindings int
	// Connections is the number of connections that read, in addition to one that plans. 0 means
	// 2. VerifyExports ignores it.
	Connections int
	// Progress, if not nil, is called from time to time with the number of verified entries and
	// an estimate of all entries, 0 if unknown. It isn't called concurrently.
	Progress func(done, all int64)

	together int64 // about how many entries are read at a time; 0 means entriesTogether
}

const (
	defaultMaxFindings = 1000
	defaultConnections = 2
)

func (v VerifyOptions) validate() error {
	if v.MaxFindings < 0 || v.Connections < 0 {
		return fmt.Errorf("%w: audit.VerifyOptions has MaxFindings %d and Connections %d: want at least 0", fence.ErrInvalid, v.MaxFindings, v.Connections)
	}
	return nil
}

// Report is the result of a verification.
type Report struct {
	// At is the time of the verified snapshot, by the database's clock; zero if no export says it.
	At time.Time `json:"at"`
	// Resources, Entries, Rejections, Operations and Heads say how many were verified: fences
	// with their histories, entries, records of rejections, kept operations, and known heads.
	Resources  int64 `json:"resources"`
	Entries    int64 `json:"entries"`
	Rejections int64 `json:"rejections"`
	Operations int64 `json:"operations"`
	Heads      int64 `json:"heads"`
	// Unprovable counts what can't be verified, because the entries that would prove it were pruned:
	// operations, which Operations includes, and known heads, which Heads doesn't. That is no finding.
	Unprovable Unprovable `json:"unprovable"`
	// LeftOut is the number of known heads that neither Heads nor Unprovable counts: those of
	// resources that the export leaves out, since their names don't match its pattern.
	LeftOut int64 `json:"left_out"`
	// Unproven names the resources whose last known head couldn't be compared because entries were
	// pruned, in the order of names. Their remaining histories may have been replaced as a whole;
	// VerifyExports with exports of the prunes can rule that out. That is no finding.
	Unproven []string `json:"unproven"`
	// TotalFindings is how many findings there are, of which Findings has the first.
	TotalFindings int64     `json:"total_findings"`
	Findings      []Finding `json:"findings"`
	// TotalUnexplained is how many records of rejections name a claim that isn't in the history;
	// Unexplained has the first VerifyOptions.MaxFindings. They are no findings: the claim may have been
	// pruned, or lost in a failover or a restore; and no hash covers these records, which any
	// member of the app role may add: one that was made up can't be told from a real one.
	TotalUnexplained int64     `json:"total_unexplained"`
	Unexplained      []Finding `json:"unexplained"`
}

// Unprovable counts what can no longer be proved.
type Unprovable struct {
	Operations int64 `json:"operations"`
	Heads      int64 `json:"heads"`
}

// verification is one run, or that of one export of several.
type verification struct {
	findings *findings
	// unexplained are rejections that decide nothing.
	unexplained *findings
	counts      *counts
	at          record.Time // of the state that is verified
	known       knownHeads
	ends        knownHeads // of exports that were verified before; nil if they aren't asked for
	setting     record.Setting
	marks       marks
	matches     func(name string) bool // a name is asked for
	all         bool                   // every name is
	prefix      string                 // that all these names have
	seen        sync.Map               // the names of resources with known heads that were verified
	proven      sync.Map               // the names of resources whose last known head was compared
	unproven    sync.Map               // the names of resources whose last known head was pruned
}

// counts are what a Report says.
type counts struct {
	resources, entries, rejections, operations, heads atomic.Int64

	prunedOperations, prunedHeads, leftOutHeads atomic.Int64
}

func (v VerifyOptions) begin() *verification {
	limit := v.MaxFindings
	if limit == 0 {
		limit = defaultMaxFindings
	}
	return &verification{findings: newFindings(limit), unexplained: newFindings(limit), counts: new(counts), at: math.MaxInt64, known: newKnownHeads(v.Known),
		matches: glob.Matcher(v.Resources), all: v.Resources == "", prefix: glob.Prefix(v.Resources)}
}

func (v *verification) see(name string) {
	if _, known := v.known[name]; known {
		v.seen.Store(name, true)
	}
}

// report is called once, when all was verified.
func (v *verification) report(at time.Time) Report {
	c := v.counts
	return Report{
		At: at, Resources: c.resources.Load(), Entries: c.entries.Load(), Rejections: c.rejections.Load(), Operations: c.operations.Load(), Heads: c.heads.Load(),
		Unprovable:    Unprovable{c.prunedOperations.Load(), c.prunedHeads.Load()},
		LeftOut:       c.leftOutHeads.Load(),
		Unproven:      v.unprovenNames(),
		TotalFindings: v.findings.total, Findings: v.findings.sorted(),
		TotalUnexplained: v.unexplained.total, Unexplained: v.unexplained.sorted(),
	}
}

// marks are the highest epoch that was claimed, and its highest token.
type marks struct {
	mu      sync.Mutex
	highest grant
}

func (m *marks) claimed(g grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g.compare(m.highest) > 0 {
		m.highest = g
	}
}

// verifyMarks compares the marks of the database with what has claimed. The mark of tokens
// follows coarsely, and 0 turns it off.
func (v *verification) verifyMarks() {
	highest, s := v.marks.highest, v.setting
	switch {
	case highest.epoch > s.Epoch:
		v.findings.add(Finding{Kind: FindingLoweredMark, Text: "The database's highest epoch is lower than one that has claimed: grants of an epoch that is over could come back.",
			Expected: "epoch " + number(highest.epoch) + " or more", Found: "epoch " + number(s.Epoch)})
	case highest.epoch == s.Epoch && s.Token > 0 && highest.token > s.Token && highest.token-s.Token > max(s.MaxTokenJump, defaultTokenJump):
		v.findings.add(Finding{Kind: FindingLoweredMark, Text: "The database's mark of tokens is far lower than a token that has claimed: it was set back.",
			Expected: "token " + number(highest.token-max(s.MaxTokenJump, defaultTokenJump)) + " or more", Found: "token " + number(s.Token)})
	}
}

// defaultTokenJump is how far above the mark a token may be by default: the owner may have lowered
// that since.
const defaultTokenJump = 1 << 40

// Verify verifies one snapshot of the history, without blocking writers or prunes. The pool must
// allow at least two connections; Verify uses VerifyOptions.Connections + 1 if it allows as many.
// Memory doesn't grow with the number of entries, but with VerifyOptions.Known and with the kept
// operations and rejections of the resources that are being read. Findings are in the Report,
// never an error: an error means that the verification is incomplete.
func (d *Database) Verify(ctx context.Context, v VerifyOptions) (Report, error) {
	if err := v.validate(); err != nil {
		return Report{}, err
	}
	run := v.begin()
	at, err := d.verify(ctx, v, run)
	if err != nil {
		return Report{}, fmt.Errorf("audit: verifying the history: %w", err)
	}
	return run.report(at), nil
}
