package epoch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
)

// requestTimeout bounds the request of Put.
const requestTimeout = 5 * time.Second

// Put puts the epoch key if it hasn't changed since seen was read, and reports whether it did put
// it. Raise the epoch of every database first. The number may be lower than the one before, which
// corrects a mistake: see "Epochs" in package etcd. With dryRun nothing is put, and an error says
// that Put would fail for want of a right, of space or of an answer. Errors are a
// *fence.UnavailableError or ctx's. After an error the key may have been put; with the Reason
// fence.WentBack it was put into an etcd that is not the one that was seen, or that was restored
// since.
func Put(ctx context.Context, client *clientv3.Client, seen inspect.Epoch, number int64, dryRun bool) (bool, error) {
	condition := clientv3.Compare(clientv3.ModRevision(seen.Key), "=", seen.KeyRevision)
	if dryRun {
		condition = clientv3.Compare(clientv3.ModRevision(seen.Key), "<", 0)
	}
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := client.Txn(request).If(condition).Then(clientv3.OpPut(seen.Key, strconv.FormatInt(number, 10))).Commit()
	switch {
	case err != nil && ctx.Err() != nil:
		return false, fmt.Errorf("put the epoch: %w", ctx.Err())
	case err != nil:
		return false, unavailable(diagnose(seen.Key, err))
	case resp.Succeeded:
		return true, unavailable(sameEtcd(seen, resp.Header))
	}
	return false, nil
}

func unavailable(reason fence.UnavailableReason, err error) error {
	if err == nil {
		return nil
	}
	return &fence.UnavailableError{Op: "put the epoch", Reason: reason, Err: err}
}

func diagnose(key string, err error) (fence.UnavailableReason, error) {
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fence.Denied, fmt.Errorf("the role of the client's user needs readwrite on the key %s: %w", key, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fence.NoSpace, fmt.Errorf("compact and defragment etcd, then run etcdctl alarm disarm: %w", err)
	case errors.Is(err, context.DeadlineExceeded), codeOf(err) == codes.Unavailable:
		return fence.Unreachable, err
	}
	return "", err
}

// codeOf is the gRPC code of an error of etcd's client.
func codeOf(err error) codes.Code {
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// sameEtcd returns an error if an answer is from another cluster or an older state than was seen.
func sameEtcd(seen inspect.Epoch, h *pb.ResponseHeader) (fence.UnavailableReason, error) {
	const putInto = "since the epoch was read, etcd was restored from a backup or another one took its place, and the key was put there: "
	switch {
	case h.ClusterId != seen.ClusterID:
		return fence.WentBack, fmt.Errorf(putInto+"the cluster id changed from %x to %x", seen.ClusterID, h.ClusterId)
	case h.Revision < seen.Revision:
		return fence.WentBack, fmt.Errorf(putInto+"the revision went back from %d to %d", seen.Revision, h.Revision)
	}
	return "", nil
}
