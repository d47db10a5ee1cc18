package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/storage"
)

// Txn is a storage.Txn. Its writes are kept in it until Commit.
type Txn struct {
	store  *Store
	claims []storage.Claim
	id     storage.TxID
	moves  []storage.Move // of a COMMIT that is late
	ran    int            // how often Run was called

	readOnly bool

	mu     sync.Mutex
	writes map[string]string
	failed bool // an operation has not returned nil: nothing can commit
	ended  bool
}

var errReadOnly = errors.New("memory: the transaction is read only")

// Run implements storage.Txn.
func (t *Txn) Run(ctx context.Context, op storage.Op[*Tx]) error {
	if err := t.begin(); err != nil {
		return err
	}
	tx := &Tx{txn: t}
	defer tx.end()
	number := t.ran
	t.ran++
	if err := op.Run(ctx, tx); err != nil {
		if _, ok := op.(storage.BatchOp[*Tx]); ok {
			err = &storage.OpError{Number: number, Err: err}
		}
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = false
	return nil
}

// begin begins an operation, which has failed until it has returned nil: it may panic.
func (t *Txn) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.failed {
		return storage.ErrTxEnded
	}
	t.failed = true
	return nil
}

// Commit implements storage.Txn.
func (t *Txn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	if !t.end() {
		return nil, storage.ErrTxEnded
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
	if t.readOnly {
		return t.commitRead(fate)
	}
	return t.commit(fate, doubt, moves)
}

// commitRead is Commit of a transaction that only reads (G13). Where the reply is lost, what was
// read is not confirmed: nothing is in doubt.
func (t *Txn) commitRead(fate Fate) ([]storage.Claim, error) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if err := t.store.check(t.claims, storage.StageCheck); err != nil {
		return nil, err
	}
	if fate != Normal {
		return nil, unconfirmedError{}
	}
	return slices.Clone(t.claims), nil
}

// unconfirmedError is ErrReplyLost of a transaction that only reads.
type unconfirmedError struct{}

func (unconfirmedError) Error() string   { return "memory: the read check was not answered" }
func (unconfirmedError) Unwrap() error   { return ErrReplyLost }
func (unconfirmedError) Retryable() bool { return true }

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
		return value, nil
	}
	return tx.txn.store.Read(key), nil
}

// Set gives key a value; "" is as good as none.
func (tx *Tx) Set(key, value string) error {
	tx.txn.mu.Lock()
	defer tx.txn.mu.Unlock()
	if tx.ended || tx.txn.ended {
		return storage.ErrTxEnded
	}
	if tx.txn.readOnly {
		return errReadOnly
	}
	tx.txn.writes[key] = value
	return nil
}

func (tx *Tx) end() {
	tx.txn.mu.Lock()
	defer tx.txn.mu.Unlock()
	tx.ended = true
}
