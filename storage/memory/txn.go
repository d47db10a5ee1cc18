package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Txn is a storage.Txn. It keeps its writes until Commit.
type Txn struct {
	store    *Store
	claims   []storage.Claim
	id       storage.TxID
	readOnly bool

	writes map[string]string
	ran    int
	failed bool // no operation may follow, and nothing can commit
	ended  bool
	moves  []storage.Move
}

func (t *Txn) Run(ctx context.Context, op storage.Op[*Tx]) error {
	t.store.mu.Lock()
	usable, number := !t.ended && !t.failed, t.ran
	t.ran, t.failed = t.ran+1, true // until op returns nil: it may panic
	t.store.mu.Unlock()
	if !usable {
		return storage.ErrTxEnded
	}
	tx := &Tx{txn: t}
	defer tx.end()
	if err := op.Run(ctx, tx); err != nil {
		if _, ok := op.(storage.BatchOp[*Tx]); ok {
			err = &storage.OpError{Number: number, Err: err}
		}
		return err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.failed = false
	return nil
}

// Commit implements storage.Txn. A read-only transaction whose reply is lost isn't in doubt, but unconfirmed.
func (t *Txn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	switch {
	case !t.end():
		return nil, storage.ErrTxEnded
	case t.failed:
		return nil, fmt.Errorf("memory: commit: an operation has failed: %w", storage.ErrTxEnded)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("memory: commit: %w", ctx.Err())
	}
	s := t.store
	fate, doubt := Normal, storage.InDoubt{Claims: t.claims, Tx: t.id}
	if decide := s.currentFaults().Commit; decide != nil {
		fate = decide(doubt)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.readOnly {
		err := s.check(t.claims, storage.StageCheck)
		if err == nil && fate != Normal {
			err = unconfirmedError{}
		}
		if err != nil {
			return nil, err
		}
		return slices.Clone(t.claims), nil
	}
	switch fate {
	case Normal, ReplyLost:
		moved, err := s.seal(t, moves)
		if err != nil {
			return nil, err
		}
		if fate == Normal {
			for i, c := range moved {
				if r := s.resources[c.Resource-1]; i < len(moves) && moves[i].Hash != nil {
					*moves[i].Hash = [32]byte(r.entries[len(r.entries)-1].Hash)
				}
			}
			return moved, nil
		}
	case Late:
		t.moves = moves
		s.late = append(s.late, t)
	}
	return nil, &storage.InDoubtError{InDoubt: doubt, Err: ErrReplyLost}
}

func (t *Txn) Rollback(context.Context) { t.end() }

func (t *Txn) end() bool {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.ended {
		return false
	}
	t.ended = true
	t.store.open--
	return true
}

// Tx is the transaction of an operation, and safe for concurrent use. It fails with storage.ErrTxEnded once the
// operation has returned.
type Tx struct {
	txn   *Txn
	ended bool
}

// Get returns what this transaction wrote for key, else what is committed now, else "".
func (tx *Tx) Get(key string) (string, error) {
	s := tx.txn.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.ended || tx.txn.ended {
		return "", storage.ErrTxEnded
	}
	if value, ok := tx.txn.writes[key]; ok {
		return value, nil
	}
	return s.data[key], nil
}

// Set gives key a value; "" is the same as none.
func (tx *Tx) Set(key, value string) error {
	s := tx.txn.store
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case tx.ended || tx.txn.ended:
		return storage.ErrTxEnded
	case tx.txn.readOnly:
		return errors.New("memory: the transaction is read only")
	}
	tx.txn.writes[key] = value
	return nil
}

func (tx *Tx) end() {
	tx.txn.store.mu.Lock()
	defer tx.txn.store.mu.Unlock()
	tx.ended = true
}

// ErrReplyLost is the cause of a storage.InDoubtError made by a Fate.
var ErrReplyLost = errors.New("memory: reply to COMMIT was lost")

type unconfirmedError struct{}

func (unconfirmedError) Error() string   { return "memory: the read check was not answered" }
func (unconfirmedError) Unwrap() error   { return ErrReplyLost }
func (unconfirmedError) Retryable() bool { return true }

// Fate is what happens to a COMMIT.
type Fate int

// Except with Normal, Commit returns a *storage.InDoubtError, unless it gets a rejection. A read-only transaction
// gets a retryable error that wraps ErrReplyLost.
const (
	Normal Fate = iota
	ReplyLost
	RequestLost
	Late // it arrives at Store.Deliver
)

// Faults are functions that the Store calls at its steps, with no lock held, on the goroutine that takes the step;
// they may block. If one returns an error, the step fails with it.
type Faults struct {
	// Claim is called before a claim, which its error prevents.
	Claim func(grant fence.Grant) error
	// ClaimReply is called after a claim has moved the fence.
	ClaimReply func(grant fence.Grant) error
	// Begin is called before a transaction begins.
	Begin func(claims []storage.Claim) error
	// Commit is called before a COMMIT and decides its fate.
	Commit func(d storage.InDoubt) Fate
	// Resolve is called before a transaction is resolved.
	Resolve func(d storage.InDoubt) error
}

func before[T any](ctx context.Context, hook func(T) error, arg T) error {
	if err := ctx.Err(); err != nil || hook == nil {
		return err
	}
	return hook(arg)
}

// SetFaults replaces the faults. The zero Faults are none.
func (s *Store) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

func (s *Store) currentFaults() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// Deliver lets late COMMITs arrive, in the order in which they were sent, and returns an error for each: nil, or
// the rejection.
func (s *Store) Deliver() (errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.late {
		_, err := s.seal(t, t.moves)
		errs = append(errs, err)
	}
	s.late = nil
	return errs
}
