package audit

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/fencekit/fencekit/internal/record"
)

// knownHead is a head, and when it was that of its resource; 0 if that isn't known.
type knownHead struct {
	Head
	at record.Time
}

type knownHeads map[string][]knownHead

func newKnownHeads(heads []Head) knownHeads {
	known := knownHeads{}
	for _, h := range heads {
		known[h.Resource] = append(known[h.Resource], knownHead{Head: h})
	}
	for _, of := range known {
		slices.SortFunc(of, bySeq)
	}
	return known
}

func bySeq(a, b knownHead) int { return cmp.Compare(a.Seq, b.Seq) }

// add replaces the heads before h, which it stands for.
func (k knownHeads) add(h knownHead) {
	later := slices.DeleteFunc(k[h.Resource], func(other knownHead) bool { return other.Seq <= h.Seq })
	k[h.Resource] = slices.Insert(later, 0, h)
}

func (s *section) knownAfter(name string, seq int64) (after, before []knownHead) {
	heads := slices.Concat(s.known[name], s.ends[name])
	slices.SortStableFunc(heads, bySeq)
	i, _ := slices.BinarySearchFunc(heads, seq, func(h knownHead, seq int64) int { return cmp.Compare(h.Seq, seq+1) })
	return heads[i:], heads[:i]
}

func (c *chain) passHeads() {
	for len(c.heads) > 0 && c.heads[0].Seq <= c.seq {
		c.passHead(c.heads[0])
		c.heads = c.heads[1:]
	}
}

func (c *chain) passHead(h knownHead) {
	if h.Seq == c.seq {
		c.compareHead(h, c.hash)
		return
	}
	c.comparedHead(h)
	c.rewritten(h, "no entry") // one is missing between the entry before and this one
}

func (c *chain) compareHead(h knownHead, hash record.Hash) {
	c.comparedHead(h)
	if !bytes.Equal(h.Hash[:], hash) {
		c.rewritten(h, "hash "+hash.String())
	}
}

func (c *chain) rewritten(h knownHead, found string) {
	c.find(FindingRewrittenHistory, h.Seq, "The history was rewritten: at this position it was known to have another entry, or another past.", "hash "+record.Hash(h.Hash[:]).String(), found)
}

// settlePruned compares known heads of before the checkpoint: only the last one and the claim that is left can
// be.
func (c *chain) settlePruned() {
	for _, h := range c.pruned {
		switch hash := c.Checkpoint.Hash; {
		case h.Seq == c.island:
			c.compareHead(h, c.islandHash)
		case h.Seq == c.Checkpoint.First-1:
			c.compareHead(h, hash)
		default:
			c.prunedHead(h)
		}
	}
	c.pruned = nil
}

func (c *chain) endHeads() {
	for _, h := range c.heads {
		if c.ofPrune() || h.at > c.begin.At { // it came later
			continue
		}
		c.comparedHead(h)
		c.find(FindingOlderState, h.Seq, "The history ends before an entry that was known: it went back to an older state, or its end was removed.", "an entry at position "+number(h.Seq), "the end at position "+number(c.seq))
	}
}

// comparedHead counts h, unless it is of an export.
func (v *verification) comparedHead(h knownHead) {
	if h.at != 0 {
		return
	}
	v.report.Heads++
	if v.isLastKnown(h) {
		v.proven[h.Resource] = true
	}
}

// prunedHead counts h, of which the history says nothing, unless it is of an export.
func (v *verification) prunedHead(h knownHead) {
	if h.at != 0 {
		return
	}
	v.report.Unprovable.Heads++
	if v.isLastKnown(h) {
		v.unproven[h.Resource] = true
	}
}

func (v *verification) isLastKnown(h knownHead) bool {
	heads := v.known[h.Resource]
	return heads[len(heads)-1].Seq == h.Seq
}
