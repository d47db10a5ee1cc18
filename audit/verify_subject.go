package audit

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/fencekit/fencekit/internal/record"
)

// subject is one resource under verification. Several goroutines may verify parts of its
// history; only the fields after "parts" change then.
type subject struct {
	*verification
	number     int32
	name       string        // "" if there is no fence, until a claim says it
	fence      *record.Fence // nil if there is none
	checkpoint *record.Checkpoint
	held       *record.Hold
	sought     *sought
	partial    bool  // a part of the history, as a prune exported it: there is no fence to compare
	to         int64 // where that part ends

	parts atomic.Int32 // that are not yet verified
}

// title is the resource's name in findings.
func (s *subject) title() string {
	if s.name != "" {
		return s.name
	}
	return fmt.Sprintf("number %d", s.number)
}

func (s *subject) find(kind FindingKind, seq int64, text, expected, found string) {
	s.findings.add(Finding{Kind: kind, Resource: s.title(), Seq: seq, Text: text, Expected: expected, Found: found})
}

// end compares the fence with the last entry.
func (c *chain) end() {
	c.settlePruned()
	c.endHeads()
	if c.checkpoint != nil && !c.partial {
		c.endCheckpoint()
	}
	switch {
	case c.partial && c.seq < c.to:
		c.missing(c.seq+1, c.to)
	case c.partial, c.fence == nil && c.seq == 0: // there is nothing that needs a fence
	case c.fence == nil:
		c.find(FindingMissingFence, c.seq, "There is no fence for these entries: the resource would accept an old token.", "a fence at position "+number(c.seq), "none")
	case c.seq < c.fence.Seq:
		c.missing(c.seq+1, c.fence.Seq)
	case c.seq == 0:
		c.compare([]difference{{"hash", c.hash32(), c.fence.Hash.String()}, {"grant", grant{}.String(), fenceGrant(c.fence).String()}})
	default:
		c.compareFence()
	}
	if c.fence != nil {
		c.marks.claimed(fenceGrant(c.fence))
	}
	if c.claim.readable {
		c.marks.claimed(c.claim.grant)
	}
}

func fenceGrant(f *record.Fence) grant { return grant{f.Epoch, f.Token} }

func (c *chain) hash32() string { return record.Hash(c.hash).String() }

// endCheckpoint is called once for a history that was pruned.
func (c *chain) endCheckpoint() {
	if c.seq < c.checkpoint.First {
		c.find(FindingWrongCheckpoint, c.checkpoint.First, "The history is said to begin here, and there is no such entry: a prune leaves the last one.", "an entry", "none")
	}
	if c.held != nil && c.checkpoint.PrunedAt > c.held.At+holdGrace {
		c.find(FindingPrunedOnHold, c.checkpoint.First, "Entries before this one were deleted although the resource was on hold.",
			"no prune after "+c.held.At.String(), "a prune at "+c.checkpoint.PrunedAt.String())
	}
}

// holdGrace is how long after its statement a hold may have committed: until then a prune
// doesn't see it.
const holdGrace record.Time = 60_000_000

// difference is a value that should have been another.
type difference struct{ what, expected, found string }

// compare reports where the fence is not as it should be.
func (c *chain) compare(differences []difference) {
	var what, expected, found []string
	for _, d := range differences {
		if d.expected != d.found {
			what = append(what, d.what)
			expected = append(expected, d.what+" "+d.expected)
			found = append(found, d.what+" "+d.found)
		}
	}
	if len(found) > 0 {
		c.find(FindingWrongFence, c.seq, "The fence isn't as the last entry left it ("+strings.Join(what, ", ")+"): it was changed, or entries were added or changed without it.", strings.Join(expected, ", "), strings.Join(found, ", "))
	}
}

func (c *chain) compareFence() {
	f := c.fence
	differences := []difference{
		{"position", number(c.seq), number(f.Seq)},
		{"transaction", number(c.tx), number(f.Tx)},
		{"claim", number(c.claim.seq), number(f.ClaimSeq)},
	}
	if !bytes.Equal(c.hash, f.Hash) {
		differences = append(differences, difference{"hash", c.hash32(), f.Hash.String()})
	}
	if c.claim.readable {
		differences = append(differences,
			difference{"grant", c.claim.grant.String(), fenceGrant(f).String()},
			difference{"holder", c.claim.holder, f.Holder},
			difference{"timeline", number(int64(c.claim.timeline)), number(int64(f.Timeline))},
			difference{"time of the claim", c.claim.at.String(), f.ClaimedAt.String()})
		if f.PrevToken != 0 { // it is 0 in a fence that was rebuilt
			differences = append(differences, c.previousToken(f)...)
		}
	}
	c.compare(differences)
}

// previousToken compares the token of the grant before the present one, if its claim was read.
func (c *chain) previousToken(f *record.Fence) []difference {
	switch {
	case c.claim.before != nil:
		return []difference{{"token before", number(c.claim.before.token), number(f.PrevToken)}}
	case c.claim.seq == 1:
		return []difference{{"token before", "0", number(f.PrevToken)}}
	}
	return nil
}
