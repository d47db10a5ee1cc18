package telemetry

import (
	"strings"
	"sync"
)

// defaultClasses is how many classes are told apart by default.
const defaultClasses = 100

// otherClass is that of the resources for whose own there is no room.
const otherClass = "other"

// classes tells up to a limit of classes apart: those that it meets first. Metrics are labelled by class,
// the part of a resource's name before the first slash, since there may be millions of resources. The limit
// keeps names without a slash from making a metric each.
type classes struct {
	limit int
	mu    sync.RWMutex
	known map[string]bool // without otherClass
	full  bool            // otherClass has been returned
}

// of returns the class of resource, or otherClass, and reports whether that is returned for the first time.
func (c *classes) of(resource string) (class string, fresh bool) {
	class, _, _ = strings.Cut(resource, "/")
	if class == "" {
		class = "/" // a label must not be empty
	}
	c.mu.RLock()
	known, full := c.known[class], c.full
	c.mu.RUnlock()
	switch {
	case known:
		return class, false
	case full:
		return otherClass, false
	}
	return c.add(class)
}

func (c *classes) add(class string) (_ string, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.known[class]:
		return class, false
	case len(c.known) < c.limit:
		class = strings.Clone(class) // it is part of a name, which it would keep
		c.known[class] = true
		return class, true
	}
	fresh = !c.full && !c.known[otherClass]
	c.full = true
	return otherClass, fresh
}
