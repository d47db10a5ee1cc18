package etcd

import (
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
)

// epoch is the state of the epoch key. No key means epoch 1.
type epoch struct {
	number   int64
	text     string // the key's value, "" without a key
	revision int64  // at which the key was put, 0 without a key
}

var firstEpoch = epoch{number: 1}

// parseEpoch reads what a Get of the epoch key found. There is one form per
// number, so that comparing texts is comparing numbers.
func parseEpoch(key string, kvs []*mvccpb.KeyValue) (epoch, error) {
	if len(kvs) == 0 {
		return firstEpoch, nil
	}
	text := string(kvs[0].Value)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > fence.MaxEpoch || strconv.FormatInt(n, 10) != text {
		return epoch{}, &EpochError{Key: key, Value: text}
	}
	return epoch{number: n, text: text, revision: kvs[0].ModRevision}, nil
}

// unchanged is the condition that the epoch key is still as e says.
func (e epoch) unchanged(key string) clientv3.Cmp {
	if e.text == "" {
		return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	}
	return clientv3.Compare(clientv3.Value(key), "=", e.text)
}
