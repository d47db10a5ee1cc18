package model

import (
	"fmt"
	"strings"
)

// call yields what call i can do. The rules are those of heldLocks.own, heldLocks.giveBackFrom,
// keeper.take, keeper.own and keeper.give in package guard.
func (m Order) call(s orderState, i int, yield func(Step, orderState)) {
	c, p := s.Calls[i], int(m.Procs[i])
	do := func(what string, n int8, change func(*orderState, *orderCall)) {
		next := s
		change(&next, &next.Calls[i])
		yield(Step{workerNames[i], what, n}, next)
	}
	switch c.Stage {
	case notBegun:
		m.begin(do)
	case looks:
		if m.OneTxn {
			m.lookTxn(s, c, p, i, do)
		} else {
			m.look(s, c, p, i, do)
		}
	case owns:
		m.own(s, c, p, do)
	case waitsLock:
		if r := c.next(); s.Locks[r][0] == int8(p+1) {
			do("acquires the lock of resource #", int8(r+1), func(s *orderState, c *orderCall) {
				s.Lines[p][r].Owned = true
				m.advance(c)
			})
		}
	case forms:
		m.form(s, c, p, i, do)
	case runs:
		m.end(s, c, p, do)
	case givesLater:
		m.give(c, p, c.At+1, m.afterLater(s, c, p), do)
	case givesAll:
		m.give(c, p, 0, done, do)
	}
}

// next is the index of the resource that the call is about.
func (c orderCall) next() int { return int(c.Names[c.At]) - 1 }

// orderChange yields a step of one call.
type orderChange = func(what string, n int8, change func(*orderState, *orderCall))

// advance goes on to the next resource, or runs.
func (m Order) advance(c *orderCall) {
	c.At, c.Stage = c.At+1, looks
	switch {
	case c.At < c.Count:
	case m.Groups:
		c.At, c.Stage = 0, forms
	default:
		c.At, c.Stage = 0, runs
	}
}

// begin begins a call over any of the resources.
func (m Order) begin(do orderChange) {
	m.lists(orderCall{Stage: looks}, func(c orderCall) {
		number := int8(0)
		for _, name := range c.Names[:c.Count] {
			number = 10*number + name
		}
		do("begins, about resources #", number, func(_ *orderState, call *orderCall) { *call = c })
	})
}

// lists yields c with each list of resources after its own: in order, or with
// OrderMutation.ArgumentOrder in any.
func (m Order) lists(c orderCall, yield func(orderCall)) {
	if c.Count >= max(m.Least, 1) {
		yield(c)
	}
	if m.Groups && c.Count == 1 {
		return // an operation on one resource: others join it
	}
	for name := int8(1); name <= m.Resources; name++ {
		next := c
		if queueOf(c.Names).has(name) || !m.Mutation.ArgumentOrder && c.Count > 0 && name < c.Names[c.Count-1] {
			continue
		}
		next.Names[c.Count] = name
		next.Count++
		m.lists(next, yield)
	}
}

// look goes on to the next resource, whose turn the call may have from before.
func (m Order) look(s orderState, c orderCall, p, i int, do orderChange) {
	r, name := c.next(), c.Names[c.At]
	switch l := s.Lines[p][r]; {
	case c.At < c.Taken:
		m.use(l, name, do)
		if !l.Owned || l.Bad || l.Contended {
			do("can't use resource # any more", name, func(_ *orderState, c *orderCall) {
				c.Stage = givesLater
				if m.Mutation.KeepLater || c.Taken == c.At+1 {
					c.Stage = owns
				}
			})
		}
	case l.Turn == none:
		do("takes its turn at resource #", name, func(s *orderState, c *orderCall) {
			s.Lines[p][r].Turn = int8(i + 1)
			c.Taken, c.Stage = c.Taken+1, owns
		})
	default:
		m.queue(c, p, i, do)
	}
}

// queue queues for the turn at the next resource.
func (m Order) queue(c orderCall, p, i int, do orderChange) {
	r := c.next()
	do("queues for its turn at resource #", c.Names[c.At], func(s *orderState, c *orderCall) {
		l := &s.Lines[p][r]
		l.Waiting = l.Waiting.with(int8(i + 1))
		c.Stage = waitsTurn
	})
}

// use uses the ownership of a line, if it is good. A contended one is so for a while
// (Config.MaxHold): it may be used or not.
func (m Order) use(l lineOf, name int8, do orderChange) {
	if l.Owned && !l.Bad {
		do("uses what is kept of resource #", name, func(_ *orderState, c *orderCall) { m.advance(c) })
	}
}

// own checks that the ownership of the call's line can be used, or queues for a
// new one.
func (m Order) own(s orderState, c orderCall, p int, do orderChange) {
	r := c.next()
	l := s.Lines[p][r]
	m.use(l, c.Names[c.At], do)
	if !l.Owned || l.Bad || l.Contended {
		do("queues for the lock of resource #", c.Names[c.At], func(s *orderState, c *orderCall) {
			m.drop(s, p, r)
			s.Locks[r] = s.Locks[r].with(int8(p + 1))
			c.Stage = waitsLock
		})
	}
}

// end ends a call that has run, or lets it try again if it has lost something.
func (m Order) end(s orderState, c orderCall, p int, do orderChange) {
	do("has run", 0, func(_ *orderState, c *orderCall) { c.Stage = givesAll })
	for _, name := range c.Names[:c.Count] {
		if s.Lines[p][name-1].Bad {
			do("tries again", 0, m.again)
			return
		}
	}
}

// give gives the last of the call's turns back, down to keep, and then is next.
func (m Order) give(c orderCall, p int, keep int8, next callStage, do orderChange) {
	name := c.Names[c.Taken-1]
	do("gives its turn at resource # back", name, func(s *orderState, c *orderCall) {
		c.Taken--
		if m.pass(s, p, int(name-1)); c.Taken == keep {
			c.Stage = next
		}
		if c.Stage == done {
			*c = orderCall{Stage: done}
		}
	})
}

// pass passes a turn on. If no call waits for it the ownership is kept, unless it is no
// good or another process waits for it.
func (m Order) pass(s *orderState, p, r int) {
	l := &s.Lines[p][r]
	front := l.Waiting[0]
	contended := l.Contended && !m.Mutation.KeepContended
	if m.KeepNothing || front == none && (l.Bad || contended) {
		m.drop(s, p, r)
	}
	l.Turn, l.Waiting = front, l.Waiting.without(front)
	if front != none {
		c := &s.Calls[front-1]
		c.Taken, c.Stage = c.Taken+1, owns
	}
}

// Show implements [Model].
func (m Order) Show(s orderState) string {
	var b strings.Builder
	for r, queue := range s.Locks[:m.Resources] {
		fmt.Fprintf(&b, "lock %d: processes %v; ", r+1, queue)
	}
	for i := range m.Procs {
		c := s.Calls[i]
		fmt.Fprintf(&b, "| %s of process %d %v", workerNames[i], m.Procs[i]+1, c.Stage)
		if c.Stage != notBegun && c.At < c.Count {
			fmt.Fprintf(&b, " %d", c.Names[c.At])
		}
		fmt.Fprintf(&b, ", has %v ", c.Names[:c.Taken])
	}
	return b.String()
}
