package guardtest

import (
	"context"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// StoreOf returns a store whose transactions all give tx to their functions, for unit tests with a mock of a
// transaction. All else is as in a memory.Store; what a function does with tx is not part of the transaction, and
// no rollback undoes it.
func StoreOf[Tx any](tx Tx) storage.Store[Tx] {
	return storeOf[Tx]{Store: memory.NewStore(), tx: tx}
}

type storeOf[Tx any] struct {
	*memory.Store
	tx Tx
}

func (s storeOf[Tx]) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[Tx], error) {
	txn, err := s.Store.Begin(ctx, claims...)
	return s.with(txn, err)
}

func (s storeOf[Tx]) BeginReadOnly(ctx context.Context, claims ...storage.Claim) (storage.Txn[Tx], error) {
	txn, err := s.Store.BeginReadOnly(ctx, claims...)
	return s.with(txn, err)
}

func (s storeOf[Tx]) with(txn storage.Txn[*memory.Tx], err error) (storage.Txn[Tx], error) {
	if err != nil {
		return nil, err
	}
	return txnOf[Tx]{Txn: txn, tx: s.tx}, nil
}

type txnOf[Tx any] struct {
	storage.Txn[*memory.Tx]
	tx Tx
}

func (t txnOf[Tx]) Run(ctx context.Context, op storage.Op[Tx]) error {
	return t.Txn.Run(ctx, storage.Func[*memory.Tx](func(ctx context.Context, _ *memory.Tx) error { return op.Run(ctx, t.tx) }))
}
