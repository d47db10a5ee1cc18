// Package load runs operations of one contender in a worker process and measures them.
//
// A worker is this program again, in a process of its own: so the CPU time and the allocations of a client
// are those of one contender and nothing else. For each cell of the benchmark workers are started, open their
// connections, wait for each other, run until each has used what it keeps, then for a time that is measured,
// and end. An operation counts if it ended within that; one that has begun when it is over is waited for.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Keys says which rows, resources or locks operations use.
type Keys string

// The kinds of keys.
const (
	// Distinct: each goroutine has its own, always the same.
	Distinct Keys = "distinct"
	// Hot: all use the same.
	Hot Keys = "hot"
	// Random: each operation uses one at random of those of the table, once each has been used.
	Random Keys = "random"
	// Fresh: each operation uses others, which none has used before it.
	Fresh Keys = "fresh"
)

// Spec is what a worker is told.
type Spec struct {
	Scenario, Contender string
	// Cell is the name of the cell, and of nothing before it: what has it in its own name is new.
	Cell               string
	Process, Processes int
	Goroutines         int
	Connections        int // of each process to Postgres
	Keys               Keys
	Width              int           // keys of an operation
	Table              int           // rows of the table that are used
	Limit              int64         // operations after which a worker stops; 0: none
	Warm               time.Duration // how long to wait at most until all goroutines are warm; 0: not at all
	Postgres           string        // a DSN
	Etcd               string        // an endpoint
	Redis              string        // an address
}

// Target is a Spec in its worker, with what contenders count and have to close.
type Target struct {
	Spec

	items   []Item       // by goroutine, for Distinct; of all, for Hot and Random
	first   atomic.Int64 // operations so far, for Random and Fresh
	closers []func(context.Context) error
}

// Item is what one operation uses.
type Item struct {
	SKUs      []string // rows of the table
	Resources []string // the name of a resource or lock for each
}

// NewTarget returns the target of a Spec.
func NewTarget(s Spec) *Target {
	t := &Target{Spec: s}
	first, n := 0, 0
	switch s.Keys {
	case Hot:
		n = 1
	case Distinct:
		first, n = s.Process*s.Goroutines, s.Goroutines
	case Random:
		n = s.Table
	}
	for i := range n {
		t.items = append(t.items, t.item((first+i)*s.Width, ""))
	}
	return t
}

// Item returns what the next operation of a goroutine uses.
func (t *Target) Item(goroutine int) Item {
	switch t.Keys {
	case Hot:
		return t.items[0]
	case Random:
		if n := int(t.first.Add(1)-1)*t.Processes + t.Process; n < len(t.items) {
			return t.items[n]
		}
		return t.items[rand.IntN(len(t.items))]
	case Distinct:
		return t.items[goroutine]
	default:
		n := int(t.first.Add(1)-1)*t.Processes + t.Process
		return t.item(n*t.Width, fmt.Sprintf("%s/%d/", t.Cell, n))
	}
}

// warm reports whether nothing that the next operation uses is new.
func (t *Target) warm() bool {
	return t.Keys != Random || int(t.first.Load())*t.Processes >= len(t.items)
}

// item returns an Item of rows from first on, in a table that is used from its beginning again.
func (t *Target) item(first int, prefix string) Item {
	var item Item
	for i := range t.Width {
		sku := fmt.Sprintf("%06d", (first+i)%t.Table)
		item.SKUs = append(item.SKUs, sku)
		item.Resources = append(item.Resources, prefix+"sku/"+sku)
	}
	return item
}

// OnClose has the worker call a function at its end, before those that it was given earlier.
func (t *Target) OnClose(f func(context.Context) error) { t.closers = append(t.closers, f) }

func (t *Target) close(ctx context.Context) error {
	var errs []error
	for _, f := range slices.Backward(t.closers) {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// Open connects a contender. What it has opened it gives to Target.OnClose.
type Open func(ctx context.Context, t *Target) (Work, error)

// Work is a contender that is connected.
type Work struct {
	// Do runs one operation on an item. Goroutines call it concurrently, each with its number.
	Do func(ctx context.Context, goroutine int, item Item) error
}
