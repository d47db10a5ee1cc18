package model

import (
	"fmt"
	"slices"
)

// bounds writes the bounds of m: calls by process x resources, then losses.
func (m Order) bounds() string {
	procs := slices.Compact(slices.Sorted(slices.Values(m.Procs)))
	text := fmt.Sprintf("%d calls of %d processes x %d, losses %d", len(m.Procs), len(procs), m.Resources, m.Losses)
	if m.Least > 1 {
		text += fmt.Sprintf(", at least %d each", m.Least)
	}
	if m.Kept {
		text += ", some kept"
	}
	if m.OneTxn {
		text += ", locks in one Txn"
	}
	if m.Groups {
		text += ", groups"
	}
	if m.KeepNothing {
		text += ", nothing kept"
	}
	return text
}

// orderVariants are about acquisition (guard.Do of several): the rules, and those with one
// thing changed.
func orderVariants() []Variant {
	holds := func(id, text string, m Order) Variant { return of(id, text, Holds, m.bounds(), m) }
	broken := func(id, text string, m Order, by OrderMutation) Variant {
		changed := m
		changed.Mutation = by
		v := of(id, text, Stuck, m.bounds(), changed)
		unbroken := of(id, "the rules within the bounds of "+id, Holds, m.bounds(), m)
		v.Unbroken = &unbroken
		return v
	}
	var (
		two   = Order{Procs: []int8{0, 1}, Resources: 2, Kept: true}
		loses = Order{Procs: []int8{0, 1}, Resources: 2, Losses: 1, Kept: true}
	)
	var (
		oneTxn  = Order{Procs: []int8{0, 1}, Resources: 2, Kept: true, OneTxn: true}
		loss    = Order{Procs: []int8{0, 1}, Resources: 2, Losses: 1, KeepNothing: true, OneTxn: true}
		grouped = Order{Procs: []int8{0, 1}, Resources: 2, Losses: 2, Groups: true}
	)
	return []Variant{
		holds("A1", "several resources (HB10)", Order{Procs: []int8{0, 1}, Resources: 3, Least: 2, Losses: 1, Kept: true}),
		holds("A2", "the same, two calls of one process", Order{Procs: []int8{0, 1, 0}, Resources: 2, Losses: 1, Kept: true}),
		holds("A3", "the same, three resources", Order{Procs: []int8{0, 1, 0}, Resources: 3, Least: 2, Kept: true}),
		holds("A4", "three processes", Order{Procs: []int8{0, 1, 2}, Resources: 3, Least: 2}),
		holds("A5", "nothing is kept", Order{Procs: []int8{0, 1, 0}, Resources: 2, Losses: 1, KeepNothing: true}),
		holds("A6", "the locks of several resources in one transaction", Order{Procs: []int8{0, 1}, Resources: 3, Least: 2, Losses: 1, Kept: true, OneTxn: true}),
		holds("A7", "the same, two calls of one process", Order{Procs: []int8{0, 1, 0}, Resources: 2, Losses: 1, Kept: true, OneTxn: true}),
		holds("A8", "the same, three processes", Order{Procs: []int8{0, 1, 2}, Resources: 3, Least: 2, OneTxn: true}),
		holds("A9", "the same, nothing is kept", Order{Procs: []int8{0, 1, 0}, Resources: 2, Losses: 1, OneTxn: true, KeepNothing: true}),
		holds("A10", "groups across resources", Order{Procs: []int8{0, 0, 1}, Resources: 2, Losses: 1, Kept: true, Groups: true}),
		holds("A11", "the same, three resources", Order{Procs: []int8{0, 0, 1}, Resources: 3, Kept: true, Groups: true}),
		broken("AB1", "in the order of the arguments, within a process", Order{Procs: []int8{0, 0}, Resources: 2}, OrderMutation{ArgumentOrder: true}),
		broken("AB2", "in the order of the arguments, among processes", two, OrderMutation{ArgumentOrder: true}),
		broken("AB3", "one that was lost is acquired anew, later ones stay held", loses, OrderMutation{KeepLater: true}),
		broken("AB4", "kept ownership is not released while its process waits", two, OrderMutation{KeepWaiting: true}),
		broken("AB5", "ownership that others wait for is kept when the turn is given back", two, OrderMutation{KeepContended: true}),
		broken("AB6", "queued for all at once, some kept", oneTxn, OrderMutation{AllQueues: true}),
		broken("AB7", "queued for all at once, nothing kept, a loss", loss, OrderMutation{AllQueues: true}),
		broken("AB8", "takes what is free while it waits for an earlier one", oneTxn, OrderMutation{TakeFree: true}),
		broken("AB9", "keeps the turns at later ones while it waits", oneTxn, OrderMutation{KeepTurns: true}),
		broken("AB10", "a group that is formed waits for turns", Order{Procs: []int8{0, 0}, Resources: 2, Groups: true}, OrderMutation{FormWaiting: true}),
		broken("AB11", "a group that failed keeps its turns while it acquires what was lost", grouped, OrderMutation{KeepGroup: true}),
	}
}
