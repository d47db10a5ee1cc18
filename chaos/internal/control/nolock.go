package control

import "context"

var noLock = Control{
	Name:        "no-lock",
	Title:       "No lock at all",
	Recipe:      "Reads, decides and writes in one transaction, at Postgres's default isolation.",
	Flaw:        "Two read the same stock, and the later write overwrites the earlier one.",
	RedByDesign: true,
	Open:        func(context.Context, Servers, string) (Lock, error) { return open{}, nil },
}

// open excludes no process.
type open struct{ unchecked }

func (open) Acquire(context.Context, string) (Held, error) { return open{}, nil }
func (open) Release(context.Context) error                 { return nil }
func (open) Close(context.Context) error                   { return nil }
