package keys

import (
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
)

// Epoch is the state of the epoch key. No key means epoch 1.
type Epoch struct {
	Number   int64
	Text     string // the key's value, "" without a key
	Revision int64  // at which the key was put, 0 without a key
}

// FirstEpoch is the epoch of a cluster without an epoch key.
var FirstEpoch = Epoch{Number: 1}

// ParseEpoch reads what a Get of the epoch key found. Each number has one text, so that
// equal texts are equal numbers.
func ParseEpoch(key string, kvs []*mvccpb.KeyValue) (Epoch, error) {
	if len(kvs) == 0 {
		return FirstEpoch, nil
	}
	text := string(kvs[0].Value)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > fence.MaxEpoch || strconv.FormatInt(n, 10) != text {
		return Epoch{}, &EpochError{Key: key, Value: text}
	}
	return Epoch{Number: n, Text: text, Revision: kvs[0].ModRevision}, nil
}

// Unchanged is the condition that the epoch key is still e.
func (e Epoch) Unchanged(key string) clientv3.Cmp {
	if e.Text == "" {
		return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	}
	return clientv3.Compare(clientv3.Value(key), "=", e.Text)
}

// EpochError says that the epoch key doesn't hold a decimal number from 1 to fence.MaxEpoch
// without sign, spaces or leading zeros.
type EpochError struct {
	Key   string
	Value string
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("etcd: epoch key %s holds %q; want a decimal number from 1 to %d", e.Key, e.Value, fence.MaxEpoch)
}

// UnavailableReason says what has to be fixed.
func (e *EpochError) UnavailableReason() fence.UnavailableReason { return fence.InvalidEpoch }
