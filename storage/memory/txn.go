package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/fencekit/fencekit/storage"
)

// Txn is a storage.Txn. Its writes are kept in it until Commit.
type Txn struct {
	store  *Store
	claims []storage.Claim
	id     storage.TxID
	moves  []storage.Move // of a COMMIT that is late

	mu     sync.Mutex
	writes map[string]*string // nil deletes
	failed bool               // an operation did not return nil
	ended  bool
}

// Run implements storage.Txn.
func (t *Txn) Run(ctx context.Context, op storage.Op[*Tx]) error {
	t.mu.Lock()
	over := t.ended || t.failed
	t.failed = true // until op has returned nil: it may panic
	t.mu.Unlock()
	if over {
		return storage.ErrTxEnded
	}
	tx := &Tx{txn: t}
	defer tx.end()
	if err := op.Run(ctx, tx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = false
	return nil
}

// Commit implements storage.Txn.
func (t *Txn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	if !t.end() {
		return nil, storage.ErrTxEnded
	}
	if err := storage.CheckMoves(moves, t.claims); err != nil {
		return nil, err
	}
	if t.failed {
		return nil, fmt.Errorf("memory: commit: an operation has failed: %w", storage.ErrTxEnded)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: commit: %w", err)
	}
	fate, doubt := Normal, storage.InDoubt{Claims: t.claims, Tx: t.id}
	if decide := t.store.currentFaults().Commit; decide != nil {
		fate = decide(doubt)
	}
	return t.commit(fate, doubt, moves)
}

// commit applies the fate of a COMMIT.
func (t *Txn) commit(fate Fate, doubt storage.InDoubt, moves []storage.Move) ([]storage.Claim, error) {
	switch fate {
	case ReplyLost:
		if _, err := t.store.seal(t, moves); err != nil {
			return nil, err
		}
	case Late:
		t.moves = moves
		t.store.mu.Lock()
		t.store.late = append(t.store.late, t)
		t.store.mu.Unlock()
	case RequestLost:
	default:
		return t.store.seal(t, moves)
	}
	return nil, &storage.InDoubtError{InDoubt: doubt, Err: ErrReplyLost}
}

// Rollback implements storage.Txn.
func (t *Txn) Rollback(context.Context) { t.end() }

// end ends t, and reports whether it had not ended yet.
func (t *Txn) end() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	t.ended = true
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.store.open--
	return true
}

// Tx is the transaction of a guarded operation. It may be used from several goroutines
// until the operation has returned; then it fails with storage.ErrTxEnded.
type Tx struct {
	txn   *Txn
	ended bool // guarded by txn.mu
}

// Get returns the value of key: what this transaction wrote, else what is
// committed now, else "".
func (tx *Tx) Get(key string) (string, error) {
	tx.txn.mu.Lock()
	defer tx.txn.mu.Unlock()
	if tx.ended || tx.txn.ended {
		return "", storage.ErrTxEnded
	}
	if value, ok := tx.txn.writes[key]; ok {
		if value == nil {
			return "", nil
		}
		return *value, nil
	}
	return tx.txn.store.Read(key), nil
}

// Set gives key a value.
func (tx *Tx) Set(key, value string) error { return tx.write(key, &value) }

// Delete removes key's value.
func (tx *Tx) Delete(key string) error { return tx.write(key, nil) }

func (tx *Tx) write(key string, value *string) error {
	tx.txn.mu.Lock()
	defer tx.txn.mu.Unlock()
	if tx.ended || tx.txn.ended {
		return storage.ErrTxEnded
	}
	tx.txn.writes[key] = value
	return nil
}

func (tx *Tx) end() {
	tx.txn.mu.Lock()
	defer tx.txn.mu.Unlock()
	tx.ended = true
}
