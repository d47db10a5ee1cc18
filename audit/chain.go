package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fencekit/fencekit/internal/record"
)

// chain verifies what there is of one resource: its entries, in the order of their positions, each against the one
// before, and what else they have to contain.
type chain struct {
	*section
	record.Resource // without a fence it has no Name until a claim says it

	rejections map[grant][]record.Rejection // whose claims weren't found yet, by the grant that had the fence
	writes     map[int64][]record.Time      // of kept operations, by transaction, which weren't found yet

	seq    int64 // of the entry before
	hash   []byte
	sealed uint64 // the server's id of its transaction if it is a write; 0 if it isn't
	linked bool   // the hash is that of the entry before, against which the next one can be verified
	tx     int64
	claim  chainClaim // under which the entry before was made
	// island is the claim that a prune left before the checkpoint; 0 if there is none.
	island     int64
	islandHash record.Hash
	heads      []knownHead // of positions to come
	pruned     []knownHead // of positions before the checkpoint
	buffer     []byte
}

type chainClaim struct {
	seq      int64
	lost     bool // it may be among entries that are missing
	readable bool // it was read, and what follows is what it says
	grant    grant
	timeline int32
	holder   string
	at       record.Time
	before   *grant // of the claim before, if that was read
}

type grant struct{ epoch, token int64 }

func (g grant) compare(other grant) int {
	return cmp.Or(cmp.Compare(g.epoch, other.epoch), cmp.Compare(g.token, other.token))
}

func (g grant) String() string { return fmt.Sprintf("token %d of epoch %d", g.token, g.epoch) }

func newChain(s *section, r record.Resource) *chain {
	c := &chain{section: s, Resource: r, rejections: map[grant][]record.Rejection{}, writes: map[int64][]record.Time{}}
	if r.Checkpoint != nil {
		c.seq, c.hash, c.linked = r.Checkpoint.First-1, bytes.Clone(r.Checkpoint.Hash), true
	} else if r.Name != "" {
		c.linkFirst()
	}
	if c.heads, c.pruned = s.knownAfter(r.Name, c.seq); s.retires(r.Name) {
		s.retired(append(c.pruned, c.heads...))
		c.heads, c.pruned = nil, nil
	}
	return c
}

func (c *chain) linkFirst() {
	before := record.Before(c.Name)
	c.hash, c.linked = before[:], true
}

// next keeps nothing of e.
func (c *chain) next(e *record.Entry) {
	if c.Name == "" && e.Name != nil { // there is no fence: the first claim says it
		if c.Name = *e.Name; c.seq == 0 && c.Checkpoint == nil {
			c.linkFirst()
		}
	}
	if c.Checkpoint != nil && e.Seq < c.Checkpoint.First && c.seq == c.Checkpoint.First-1 {
		c.beforeCheckpoint(e)
		return
	}
	c.settlePruned()
	switch {
	case e.Seq <= c.seq:
		c.find(FindingRepeatedEntry, e.Seq, "There is a second entry at this position, or one that belongs before it: it was inserted.", "a position above "+number(c.seq), number(e.Seq))
		return
	case e.Seq > c.seq+1:
		c.missing(c.seq+1, e.Seq-1)
		c.linked, c.claim.lost = false, true
	}
	c.verifyHash(e)
	c.verifyShape(e)
	c.verifyClaim(e)
	c.seq, c.tx, c.sealed, c.linked = e.Seq, e.Tx, 0, true
	if e.Kind == record.Write {
		c.sealed = e.Xid
	}
	c.hash = append(c.hash[:0], e.Hash...)
	c.passHeads()
	c.passReceipts(e)
	c.pass(e)
}

func (c *chain) missing(first, last int64) {
	text := fmt.Sprintf("Entries are missing: those at positions %d to %d were removed.", first, last)
	if first == last {
		text = "The entry is missing: it was removed."
	}
	c.find(FindingMissingEntries, first, text, "an entry at each position", "none")
}

func (c *chain) verifyHash(e *record.Entry) {
	if !c.linked {
		return
	}
	c.buffer = e.AppendPreimage(append(c.buffer[:0], c.hash...))
	if want := sha256.Sum256(c.buffer); !bytes.Equal(want[:], e.Hash) {
		c.find(FindingChangedEntry, e.Seq, "The entry isn't what was recorded, or what stands before it isn't: one of them was changed, exchanged or inserted.",
			"hash "+record.Hash(want[:]).String(), "hash "+e.Hash.String())
	}
}

func (c *chain) verifyShape(e *record.Entry) {
	problem := ""
	whole := e.Epoch != nil && e.Token != nil && e.Timeline != nil && e.Holder != nil && e.Name != nil
	some := e.Epoch != nil || e.Token != nil || e.Timeline != nil || e.Holder != nil || e.Name != nil
	switch {
	case e.Kind != record.Claim && e.Kind != record.Write && e.Kind != record.Void:
		problem = "neither a claim nor a write nor a void"
	case e.Kind == record.Claim && !whole:
		problem = "a claim without its whole grant"
	case e.Kind != record.Claim && some:
		problem = "a " + e.Kind.String() + " with a grant of its own"
	case e.Kind != record.Write && e.Ops != nil:
		problem = "a " + e.Kind.String() + " that lists operations"
	}
	if problem != "" {
		c.find(FindingMalformedEntry, e.Seq, "The entry can't have been made by Fencekit: it is "+problem+".", "", "")
	}
}

// verifyClaim: each claim is higher than the one before, and each other entry was made under the latest.
func (c *chain) verifyClaim(e *record.Entry) {
	if e.Kind == record.Claim {
		if c.island != 0 && e.Seq == c.Checkpoint.First {
			c.find(FindingWrongCheckpoint, c.island, "The entry is before the checkpoint, where a prune leaves nothing if a claim comes first after it.", "none", "a claim")
		}
		c.verifyNewClaim(e)
		return
	}
	switch {
	case e.Claim == c.claim.seq:
		return
	case e.Claim >= e.Seq || e.Claim < 1:
		c.find(FindingWrongClaim, e.Seq, "The entry names a claim that isn't before it.", "a position below "+number(e.Seq), number(e.Claim))
	case c.claim.seq == 0 && c.seq > 0 && c.Checkpoint != nil:
		c.find(FindingWrongClaim, e.Seq, "The claim under which the entry was made is missing: a prune would have left it.", "a claim at position "+number(e.Claim), "none")
	case !c.claim.lost:
		c.find(FindingWrongClaim, e.Seq, "The entry names another claim than the latest one before it.", number(c.claim.seq), number(e.Claim))
	}
	c.claim = chainClaim{seq: e.Claim} // report it once
}

func (c *chain) verifyNewClaim(e *record.Entry) {
	if e.Claim != e.Seq {
		c.find(FindingWrongClaim, e.Seq, "The claim doesn't name itself as its claim.", number(e.Seq), number(e.Claim))
	}
	if e.Name != nil && *e.Name != c.Name {
		c.find(FindingWrongName, e.Seq, "The claim is of another resource.", strconv.Quote(c.Name), strconv.Quote(*e.Name))
	}
	if e.Epoch == nil || e.Token == nil || e.Timeline == nil || e.Holder == nil {
		c.claim = chainClaim{seq: e.Seq}
		return
	}
	last := c.claim
	c.claim = chainClaim{seq: e.Seq, readable: true, grant: grant{*e.Epoch, *e.Token}, timeline: *e.Timeline, holder: *e.Holder, at: e.At}
	if !last.readable {
		return
	}
	c.claim.before = &last.grant
	if c.claim.grant.compare(last.grant) <= 0 {
		c.find(FindingTokensOutOfOrder, e.Seq, "The claim isn't higher than the one before: an earlier holder took the resource back.", "more than "+last.grant.String(), c.claim.grant.String())
	}
}

func (c *chain) beforeCheckpoint(e *record.Entry) {
	if c.island != 0 {
		c.find(FindingWrongCheckpoint, e.Seq, "The entry is before the checkpoint, where a prune leaves one claim alone.", "one entry", "another one at position "+number(c.island))
		return
	}
	c.island, c.islandHash = e.Seq, bytes.Clone(e.Hash)
	c.verifyShape(e)
	if e.Kind != record.Claim {
		c.find(FindingWrongCheckpoint, e.Seq, "The entry is before the checkpoint, where a prune leaves a claim alone.", "a claim", e.Kind.String())
		return
	}
	c.verifyNewClaim(e)
	if e.Seq == c.Checkpoint.First-1 && !bytes.Equal(e.Hash, c.Checkpoint.Hash) {
		c.find(FindingWrongCheckpoint, e.Seq, "The checkpoint has another hash than the entry before it.", "hash "+e.Hash.String(), "hash "+c.Checkpoint.Hash.String())
	}
	c.pass(e)
}

func (c *chain) close() {
	c.end()
	c.settle()
	if c.ends != nil && c.linked && c.Name != "" && len(c.hash) == len(Head{}.Hash) {
		c.ends.add(knownHead{Head{c.Name, c.seq, [32]byte(c.hash)}, c.begin.At})
	}
	if !c.ofPrune() {
		c.report.Resources++
	}
}

func (c *chain) end() {
	c.settlePruned()
	c.endHeads()
	if c.Checkpoint != nil && !c.ofPrune() {
		c.endCheckpoint()
	}
	switch {
	case c.ofPrune() && c.seq < c.To:
		c.missing(c.seq+1, c.To)
	case c.ofPrune(), c.Fence == nil && c.seq == 0: // there is nothing that needs a fence
	case c.Fence == nil:
		c.find(FindingMissingFence, c.seq, "There is no fence for these entries: the resource would accept an old token.", "a fence at position "+number(c.seq), "none")
	case c.seq < c.Fence.Seq:
		c.missing(c.seq+1, c.Fence.Seq)
	default:
		c.compareFence()
	}
	if c.Fence != nil {
		c.claimed(fenceGrant(c.Fence))
	}
	if c.claim.readable {
		c.claimed(c.claim.grant)
	}
}

func fenceGrant(f *record.Fence) grant { return grant{f.Epoch, f.Token} }

func (c *chain) hash32() string { return record.Hash(c.hash).String() }

func (c *chain) endCheckpoint() {
	c.excuseReceipts(ReceiptPruned, func(r *ReceiptResult) bool { return r.Resource == c.Name && r.Seq < c.Checkpoint.First })
	if c.seq < c.Checkpoint.First {
		c.find(FindingWrongCheckpoint, c.Checkpoint.First, "The history is said to begin here, and there is no such entry: a prune leaves the last one.", "an entry", "none")
	}
	if c.Hold != nil && c.Checkpoint.PrunedAt > c.Hold.At+holdGrace {
		c.find(FindingPrunedOnHold, c.Checkpoint.First, "Entries before this one were deleted although the resource was on hold.",
			"no prune after "+c.Hold.At.String(), "a prune at "+c.Checkpoint.PrunedAt.String())
	}
}

// holdGrace is how long after its statement a hold may have committed, unseen by a prune.
const holdGrace record.Time = 60_000_000

// compareFence compares the fence with what the last entry left, or with one that has no entries.
func (c *chain) compareFence() {
	var what, expected, found []string
	differ := func(name, want, is string) {
		if want != is {
			what, expected, found = append(what, name), append(expected, name+" "+want), append(found, name+" "+is)
		}
	}
	f, claim := c.Fence, c.claim
	if c.seq > 0 {
		differ("position", number(c.seq), number(f.Seq))
		differ("transaction", number(c.tx), number(f.Tx))
		differ("claim", number(claim.seq), number(f.ClaimSeq))
	}
	if f.Sealed != 0 { // in a fence that was rebuilt; mutant: verify-does-not-compare-the-seal
		differ("seal", strconv.FormatUint(c.sealed, 10), strconv.FormatUint(f.Sealed, 10))
	}
	differ("hash", c.hash32(), f.Hash.String())
	switch {
	case c.seq == 0:
		differ("grant", grant{}.String(), fenceGrant(f).String())
	case claim.readable:
		differ("grant", claim.grant.String(), fenceGrant(f).String())
		differ("holder", claim.holder, f.Holder)
		differ("timeline", number(int64(claim.timeline)), number(int64(f.Timeline)))
		differ("time of the claim", claim.at.String(), f.ClaimedAt.String())
		switch {
		case f.PrevToken == 0: // in a fence that was rebuilt
		case claim.before != nil:
			differ("token before", number(claim.before.token), number(f.PrevToken))
		case claim.seq == 1:
			differ("token before", "0", number(f.PrevToken))
		}
	}
	if len(found) > 0 {
		c.find(FindingWrongFence, c.seq, "The fence isn't as the last entry left it ("+strings.Join(what, ", ")+"): it was changed, or entries were added or changed without it.", strings.Join(expected, ", "), strings.Join(found, ", "))
	}
}

func (c *chain) title() string {
	if c.Name != "" {
		return c.Name
	}
	return fmt.Sprintf("number %d", c.Number)
}

func (c *chain) find(kind FindingKind, seq int64, text, expected, found string) {
	c.add(Finding{Kind: kind, Resource: c.title(), Seq: seq, Text: text, Expected: expected, Found: found})
}

func (c *chain) expect(r record.Rejection) {
	c.report.Rejections++
	if r.CurrentHolder != "" {
		g := grant{r.CurrentEpoch, r.CurrentToken}
		c.rejections[g] = append(c.rejections[g], r)
	}
}

func (c *chain) pass(e *record.Entry) {
	if e.Kind == record.Write {
		delete(c.writes, e.Tx)
	}
	if e.Kind != record.Claim || len(c.rejections) == 0 || e.Epoch == nil || e.Token == nil || e.Holder == nil {
		return
	}
	g := grant{*e.Epoch, *e.Token}
	if left := slices.DeleteFunc(c.rejections[g], func(r record.Rejection) bool {
		return r.CurrentHolder == *e.Holder && (r.CurrentSince == nil || *r.CurrentSince == e.At)
	}); len(left) > 0 {
		c.rejections[g] = left
	} else {
		delete(c.rejections, g)
	}
}

func (c *chain) settle() {
	for _, g := range slices.SortedFunc(maps.Keys(c.rejections), grant.compare) {
		for _, r := range c.rejections[g] {
			expected := "a claim of " + g.String() + " by " + r.CurrentHolder
			if r.CurrentSince != nil {
				expected += " at " + r.CurrentSince.String()
			}
			c.addUnexplained(Finding{Kind: FindingUnexplainedRejection, Resource: c.title(), Expected: expected, Found: "none",
				Text: fmt.Sprintf("The rejection of %s (%s) as %q names a claim that isn't in the history.", grant{r.Epoch, r.Token}, r.Holder, r.Reason)})
		}
	}
	for _, tx := range slices.Sorted(maps.Keys(c.writes)) {
		for _, at := range c.writes[tx] {
			if c.Checkpoint != nil && at < c.Checkpoint.PrunedAt {
				c.report.Unprovable.Operations++
				continue
			}
			c.find(FindingUnfoundedOperation, 0, "An operation is kept as done whose write isn't in the history: it would not run again.", "a write of transaction "+number(tx), "none")
		}
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
