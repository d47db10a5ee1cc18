package model

import "fmt"

// bounds writes the bounds of m: transactions x resources.
func (m Rows) bounds() string {
	return fmt.Sprintf("%d transactions x %d, %d of them have fences", m.Txs, m.Resources, m.Existing)
}

// rowsVariants are about the order in which rows are locked: the rules, and those with one
// thing changed.
func rowsVariants() []Variant {
	holds := func(id, text string, m Rows) Variant { return of(id, text, Holds, m.bounds(), m) }
	broken := func(id, text string, m Rows, by RowsMutation) Variant {
		changed := m
		changed.Mutation = by
		v := of(id, text, Stuck, m.bounds(), changed)
		unbroken := of(id, "the rules within the bounds of "+id, Holds, m.bounds(), m)
		v.Unbroken = &unbroken
		return v
	}
	var (
		old   = Rows{Txs: 2, Resources: 2, Existing: 2}
		fresh = Rows{Txs: 3, Resources: 2, Existing: 0}
	)
	return []Variant{
		holds("R1", "claims and seals of several resources", Rows{Txs: 3, Resources: 2, Existing: 2}),
		holds("R1b", "the same, three resources", Rows{Txs: 2, Resources: 3, Existing: 3}),
		holds("R2", "the same, resources are used for the first time", fresh),
		holds("R2b", "the same, beside one that has a fence", Rows{Txs: 2, Resources: 3, Existing: 1}),
		broken("RB1", "claims lock fences in the order of names", old, RowsMutation{ByName: true}),
		broken("RB2", "a seal locks fences in any order", old, RowsMutation{SealsInAnyOrder: true}),
		broken("RB3", "claims of several resources lock the mark after their fences", old, RowsMutation{MarkLate: true}),
		broken("RB4", "claims create missing fences in the transaction that claims them", fresh, RowsMutation{CreateInside: true}),
	}
}
