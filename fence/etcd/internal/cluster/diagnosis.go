package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Sentinels for what is wrong with etcd, wherever an error comes from it: in a
// *fence.UnavailableError, or behind the loss of a lease. The error's text says
// what to do about it, and wraps etcd's own.
var (
	// ErrNoSpace: etcd has used up its quota and takes only what needs no space.
	// Nothing is acquired; what is held is renewed and can be released.
	ErrNoSpace = errors.New("etcd: out of space")
	// ErrPermission: the client's user lacks a right that the package comment
	// names.
	ErrPermission = errors.New("etcd: permission denied")
	// ErrUnauthenticated: etcd wants to know who the client is, and takes neither
	// its password, nor its token, nor its certificate for it.
	ErrUnauthenticated = errors.New("etcd: not authenticated")
	// ErrUnreachable: no member answers, or those that do can't reach a majority.
	// The outcome of what was asked is open, and is settled in the background.
	ErrUnreachable = errors.New("etcd: no answer")
)

// unauthenticated are etcd's ways to say so.
var unauthenticated = []error{
	rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthFailed, rpctypes.ErrAuthOldRevision,
}

// Diagnose puts what is wrong with etcd, and what to do about it, before an error
// of etcd's. Others are returned as they are. It asks nobody.
func (c *Cluster) Diagnose(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrUnreachable):
		return err
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: nothing can be acquired, what is held stays held: "+
			"compact and defragment etcd, then run etcdctl alarm disarm: %w", ErrNoSpace, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%w: the role of the client's user needs %s: %w", ErrPermission, c.rights(), err)
	case isAny(err, unauthenticated):
		return fmt.Errorf("%w: give clientv3.Config the Username and Password of an etcd user, "+
			"or a TLS certificate whose common name is one: %w", ErrUnauthenticated, err)
	case errors.Is(err, context.DeadlineExceeded): // of one request, not of the caller's ctx
		return fmt.Errorf("%w from %s; %s", ErrUnreachable, c.endpoints(), checkMembers)
	case codeOf(err) == codes.Unavailable:
		return fmt.Errorf("%w from a majority of the members behind %s: %w; %s", ErrUnreachable, c.endpoints(), plainError{err}, checkMembers)
	}
	return err
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
