package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
)

// Errors that say what is wrong with etcd; each message goes on with the remedy.
var (
	errNoSpace         = errors.New("etcd: out of space")
	errTooBig          = errors.New("etcd: the server's limits are too low")
	errPermission      = errors.New("etcd: permission denied")
	errUnauthenticated = errors.New("etcd: not authenticated")
	errNoAnswer        = errors.New("etcd: no answer")
)

// unauthenticated are the errors of etcd that mean errUnauthenticated.
var unauthenticated = []error{
	rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthFailed, rpctypes.ErrAuthOldRevision,
}

// Diagnose returns the error of op, which failed with err: it says what is wrong with etcd,
// and what to do about it. It makes no request. It is nil if err is.
func (c *Cluster) Diagnose(op string, err error) error {
	if err == nil {
		return nil
	}
	reason, text := c.diagnose(err)
	return &fence.UnavailableError{Op: op, Reason: reason, Err: text}
}

func (c *Cluster) diagnose(err error) (fence.UnavailableReason, error) {
	var known interface {
		UnavailableReason() fence.UnavailableReason
	}
	switch {
	case errors.As(err, &known):
		return known.UnavailableReason(), err
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fence.NoSpace, fmt.Errorf("%w: nothing can be acquired, what is held stays held: "+
			"compact and defragment etcd, then run etcdctl alarm disarm: %w", errNoSpace, err)
	case TooBig(err):
		return fence.Limited, fmt.Errorf("%w: one lock needs 3 for --max-txn-ops (128 by default), and --max-request-bytes for its key, "+
			"its holder and the value that it proclaims: %w", errTooBig, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fence.Denied, fmt.Errorf("%w: the role of the client's user needs %s: %w", errPermission, c.rights(), err)
	case isAny(err, unauthenticated):
		return fence.Denied, fmt.Errorf("%w: give clientv3.Config the Username and Password of an etcd user, "+
			"or a TLS certificate whose common name is one: %w", errUnauthenticated, err)
	case errors.Is(err, context.DeadlineExceeded): // of one request, not of the caller's ctx
		return fence.Unreachable, fmt.Errorf("%w from %s; %s", errNoAnswer, c.endpoints(), checkMembers)
	case codeOf(err) == codes.Unavailable:
		return fence.Unreachable, fmt.Errorf("%w from a majority of the members behind %s: %w; %s", errNoAnswer, c.endpoints(), plainError{err}, checkMembers)
	}
	return "", err
}

func (c *Cluster) endpoints() string { return strings.Join(c.Client.Endpoints(), ", ") }

// rights are what a role needs to use a locker of this prefix.
func (c *Cluster) rights() string {
	k := c.Keys
	locks := k.Prefix + "/locks/"
	if k.Mutex {
		locks = "RESOURCE/ of every resource"
	}
	return fmt.Sprintf("readwrite on the prefixes %s and %s/void/, and read on the key %s", locks, k.Prefix, k.Epoch())
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// codeOf is the gRPC code of an error of etcd's client.
func codeOf(err error) codes.Code {
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}
