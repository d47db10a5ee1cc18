package storage

import "context"

// Op is one guarded operation. A Func is one; a store can bring its own kinds.
type Op[Tx any] interface {
	// Run works in tx and neither commits nor rolls back. tx must not be used
	// after Run has returned.
	Run(ctx context.Context, tx Tx) error
}

// BatchOp is an Op that makes no decision of its own between its statements. It may run
// any number of times until one of its transactions takes effect, and a transaction may
// run several. Txn.Run may return nil before anything of it was sent: then Commit sends
// it, and Commit's error may be its own. A caller that needs its results before Commit
// gives Txn.Run its method Run, as a Func.
type BatchOp[Tx any] interface {
	Op[Tx]
	// Shares reports whether others may run in the same transaction. It is false if they could
	// meet what the operation leaves there, such as a setting. It is called before Run.
	Shares() bool
}

// OpError says which operation of a transaction has failed: the others may commit without it.
type OpError struct {
	Number int // its place among those that Txn.Run was called with, from 0
	Err    error
}

func (e *OpError) Error() string { return e.Err.Error() }
func (e *OpError) Unwrap() error { return e.Err }

// ResultOp is an Op with results, which guard.Once can keep and give back to a repeated
// call.
type ResultOp[Tx any] interface {
	Op[Tx]
	// Results returns the result of the latest Run, at most 64 KiB.
	Results() ([]byte, error)
	// SetResults sets the result of an earlier call, instead of a Run; and that of the Run itself, so
	// that the first call gets what later ones get.
	SetResults(results []byte) error
}

// Func is an operation written as a function.
type Func[Tx any] func(ctx context.Context, tx Tx) error

// Run calls f.
func (f Func[Tx]) Run(ctx context.Context, tx Tx) error { return f(ctx, tx) }

// OnceKey names an operation that is to take effect once.
type OnceKey struct {
	Key     string   // the caller's, unique within each resource
	Request [32]byte // hash of what was asked for
}
