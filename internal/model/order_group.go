package model

import "slices"

// form lets a call add resources to its group whose turns are free and whose locks its
// process has, or can have at once. It waits for none, so they may come in any order.
func (m Order) form(s orderState, c orderCall, p, i int, do orderChange) {
	do("begins the transaction of its group", 0, func(_ *orderState, c *orderCall) { c.Stage = runs })
	for name := int8(1); name <= m.Resources; name++ {
		l := s.Lines[p][name-1]
		switch {
		case slices.Contains(c.Names[:c.Count], name):
		case l.Turn == none && (l.Owned && !l.Bad && !l.Contended || !l.Owned && s.Locks[name-1][0] == none):
			do("adds resource # to its group", name, func(s *orderState, c *orderCall) {
				s.Lines[p][name-1].Turn = int8(i + 1)
				m.enqueue(s, p, int(name-1))
				c.Names[c.Count] = name
				c.Count, c.Taken = c.Count+1, c.Taken+1
			})
		case l.Turn != none && m.Mutation.FormWaiting:
			m.formWaiting(c, name, p, i, do)
		}
	}
}

// formWaiting is OrderMutation.FormWaiting.
func (m Order) formWaiting(c orderCall, name int8, p, i int, do orderChange) {
	next := c
	next.Names[c.Count] = name
	next.At, next.Count = c.Count, c.Count+1
	m.queue(next, p, i, func(what string, n int8, change func(*orderState, *orderCall)) {
		do(what, n, func(s *orderState, c *orderCall) {
			*c = next
			change(s, c)
		})
	})
}

// again lets a call try again that has lost something. A group is given up: each of its
// members goes on alone, and this call is about the first.
func (m Order) again(_ *orderState, c *orderCall) {
	c.At, c.Stage = 0, looks
	if !m.Groups || m.Mutation.KeepGroup {
		return
	}
	if c.Taken > 1 {
		c.Stage = givesLater
	}
	c.Count = 1
}
