package turns

// chain is a doubly linked list whose elements hold their own links, so that many short lists take
// little memory. An element is in at most one chain at a time. The zero chain is empty.
type chain[T chained[T]] struct{ first, last T }

// chained is an element of a chain: a pointer to a struct with a place.
type chained[T any] interface {
	comparable
	inChain() *place[T]
}

// place holds the links of an element; zero while it is in no chain.
type place[T any] struct{ previous, next T }

// append puts e, which is in no chain, at the end.
func (c *chain[T]) append(e T) {
	var none T
	e.inChain().previous = c.last
	if c.last == none {
		c.first = e
	} else {
		c.last.inChain().next = e
	}
	c.last = e
}

// prepend puts e, which is in no chain, at the beginning.
func (c *chain[T]) prepend(e T) {
	var none T
	e.inChain().next = c.first
	if c.first == none {
		c.last = e
	} else {
		c.first.inChain().previous = e
	}
	c.first = e
}

// remove takes e out, unless it is in no chain.
func (c *chain[T]) remove(e T) {
	var none T
	at := e.inChain()
	switch {
	case at.previous != none:
		at.previous.inChain().next = at.next
	case c.first == e:
		c.first = at.next
	default:
		return
	}
	if at.next == none {
		c.last = at.previous
	} else {
		at.next.inChain().previous = at.previous
	}
	*at = place[T]{}
}
