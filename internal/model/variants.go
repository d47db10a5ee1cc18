package model

// Variant is a row of the table: a protocol, its bounds and the expected result.
type Variant struct {
	// ID is M.. for the textbook fence (docs/decisions.md has why), P..
	// for the protocol and B.. for the protocol with one thing broken, A.. for
	// acquisition and AB.. for that with one thing broken, R.. for the order of row locks
	// and RB.. for that with one thing broken.
	ID string
	// Text says what it is, and cites what it is about.
	Text string
	// Want is the golden result.
	Want Violation
	// Bounds are clients x grants x operations, and what is out of the ordinary;
	// those of acquisition and of row locks are written in words.
	Bounds string

	// Explore runs the variant through all its states, see the function Explore.
	Explore func() (Result, error)
	// Replay runs one schedule of it, see the function Replay.
	Replay func([]Step) ([]Violation, error)
	// Unbroken is the protocol within the same bounds and under the same
	// faults; nil where nothing is broken.
	Unbroken *Variant
}

// stateLimit is far above what any variant needs, and well below what hurts.
const stateLimit = 500_000

// of makes a Variant of a model.
func of[S comparable](id, text string, want Violation, bounds string, m Model[S]) Variant {
	return Variant{
		ID: id, Text: text, Want: want, Bounds: bounds,
		Explore: func() (Result, error) { return Explore(m, stateLimit) },
		Replay:  func(steps []Step) ([]Violation, error) { return Replay(m, steps) },
	}
}

// Variants returns the whole table.
func Variants() []Variant {
	all := textbookVariants()
	all = append(all, protocolVariants()...)
	all = append(all, onceVariants()...)
	all = append(all, groupVariants()...)
	all = append(all, readVariants()...)
	all = append(all, brokenVariants()...)
	all = append(all, brokenOnceVariants()...)
	all = append(all, brokenGroupVariants()...)
	all = append(all, brokenReadVariants()...)
	all = append(all, orderVariants()...)
	return append(all, rowsVariants()...)
}
