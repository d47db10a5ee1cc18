package class

import (
	"strings"
	"sync"
)

// DefaultLimit is how many classes a Set tells apart unless it is told otherwise.
const DefaultLimit = 100

// Other is the class of the resources whose own class a Set has no room for.
const Other = "other"

// Set tells up to a limit of classes apart: those that it meets first. Its methods may be called
// from several goroutines.
type Set struct {
	limit int
	mu    sync.RWMutex
	known map[string]bool // the classes, without Other; true
	full  bool            // Other has been returned
}

// NewSet returns a Set without classes.
func NewSet(limit int) *Set { return &Set{limit: limit, known: map[string]bool{}} }

// Of returns the class of resource, or Other. It reports as fresh whether the Set returns this
// class for the first time.
func (s *Set) Of(resource string) (class string, fresh bool) {
	class = name(resource)
	s.mu.RLock()
	known, full := s.known[class], s.full
	s.mu.RUnlock()
	switch {
	case known:
		return class, false
	case full:
		return Other, false
	}
	return s.add(class)
}

func (s *Set) add(class string) (_ string, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.known[class]:
		return class, false
	case len(s.known) < s.limit:
		class = strings.Clone(class) // it is part of a name, which it would keep
		s.known[class] = true
		return class, true
	}
	fresh = !s.full && !s.known[Other]
	s.full = true
	return Other, fresh
}

// name returns the part of resource before the first slash. If that is empty, it is the slash: a
// label must not be empty.
func name(resource string) string {
	class, _, _ := strings.Cut(resource, "/")
	if class == "" {
		return "/"
	}
	return class
}
