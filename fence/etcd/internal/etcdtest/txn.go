package etcdtest

import (
	"bytes"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Puts reports whether txn puts a key with this text in its name.
func Puts(txn *pb.TxnRequest, text string) bool {
	return slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
		return bytes.Contains(op.GetRequestPut().GetKey(), []byte(text))
	})
}

// Deletes reports whether txn deletes, and does nothing else.
func Deletes(txn *pb.TxnRequest) bool {
	return !slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
		within := op.GetRequestTxn()
		return op.GetRequestDeleteRange() == nil && (within == nil || !Deletes(within))
	})
}

// IsAcquire reports whether txn puts lock keys.
func IsAcquire(txn *pb.TxnRequest) bool { return Puts(txn, "/locks/") }
