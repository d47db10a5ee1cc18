package queue

// callback is a function that waits for contention of a position, and the next one that does.
// Most positions have one: a list of one takes less memory than a map.
type callback struct {
	f    func()
	next *callback
}

// call calls the functions of the list that begins with c, each in a goroutine of its own.
func (c *callback) call() {
	for ; c != nil; c = c.next {
		go c.f()
	}
}

// removeFrom takes c out of a list, and reports whether it was there.
func (c *callback) removeFrom(list **callback) bool {
	for ; *list != nil; list = &(*list).next {
		if *list == c {
			*list = c.next
			return true
		}
	}
	return false
}
