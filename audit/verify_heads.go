package audit

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/fencekit/fencekit/internal/record"
)

// knownHeads are heads by the names of their resources.
type knownHeads map[string][]Head

func newKnownHeads(heads []Head) knownHeads {
	known := knownHeads{}
	for _, h := range heads {
		known[h.Resource] = append(known[h.Resource], h)
	}
	for _, of := range known {
		slices.SortFunc(of, func(a, b Head) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return known
}

// after returns the heads of a resource behind a position.
func (k knownHeads) after(name string, seq int64) []Head {
	heads := k[name]
	i, _ := slices.BinarySearchFunc(heads, seq, func(h Head, seq int64) int { return cmp.Compare(h.Seq, seq+1) })
	return heads[i:]
}

// passHeads compares known heads up to the present position.
func (c *chain) passHeads() {
	for len(c.heads) > 0 && c.heads[0].Seq <= c.seq {
		c.passHead(c.heads[0])
		c.heads = c.heads[1:]
	}
}

func (c *chain) passHead(h Head) {
	if h.Seq == c.seq {
		c.compareHead(h, c.hash)
		return
	}
	c.counts.heads.Add(1)
	c.rewritten(h, "no entry") // one is missing between the entry before and this one
}

func (c *chain) compareHead(h Head, hash record.Hash) {
	c.counts.heads.Add(1)
	if !bytes.Equal(h.Hash[:], hash) {
		c.rewritten(h, "hash "+hash.String())
	}
}

func (c *chain) rewritten(h Head, found string) {
	c.find(KindRewritten, h.Seq, "The history was rewritten: at this position it was known to have another entry, or another past.", "hash "+record.Hash(h.Hash[:]).String(), found)
}

// settlePruned compares known heads of before the checkpoint, of which only the last one and
// that of the claim that is left can be compared.
func (c *chain) settlePruned() {
	for _, h := range c.pruned {
		switch hash := c.checkpoint.Hash; {
		case h.Seq == c.island:
			c.compareHead(h, c.islandHash)
		case h.Seq == c.checkpoint.First-1:
			c.compareHead(h, hash)
		default:
			c.counts.prunedHeads.Add(1)
		}
	}
	c.pruned = nil
}

// endHeads reports known heads behind the end.
func (c *chain) endHeads() {
	for _, h := range c.heads {
		c.counts.heads.Add(1)
		c.find(KindOlder, h.Seq, "The history ends before an entry that was known: it went back to an older state, or its end was removed.", "an entry at position "+number(h.Seq), "the end at position "+number(c.seq))
	}
}
