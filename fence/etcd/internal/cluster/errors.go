package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

var ErrLeaseGone error = rpctypes.ErrLeaseNotFound

// rejections are errors that etcd returns before it changes anything. After other errors the outcome of a write is
// open; "no space" may even follow the write that used up the space.
var rejections = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyRequests, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge, rpctypes.ErrPermissionDenied,
	rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrAuthFailed,
}

func Rejected(err error) bool { return isAny(err, rejections) }

func TooBig(err error) bool {
	return isAny(err, []error{rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge})
}

func Ended(ctx context.Context, what string) error {
	return session.Ended(ctx, "etcd: "+what)
}

var unauthenticated = []error{
	rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthFailed, rpctypes.ErrAuthOldRevision,
}

// Diagnose says what is wrong with etcd, and what to do about it. It makes no request.
func (c *Cluster) Diagnose(op string, err error) error {
	if err == nil {
		return nil
	}
	reason, text := c.diagnose(err)
	return &fence.UnavailableError{Call: op, Reason: reason, Err: text}
}

type reasoned interface {
	UnavailableReason() fence.UnavailableReason
}

type because struct {
	error
	reason fence.UnavailableReason
}

func Because(reason fence.UnavailableReason, text string, args ...any) error {
	return because{fmt.Errorf(text, args...), reason}
}

func (e because) UnavailableReason() fence.UnavailableReason { return e.reason }

func (c *Cluster) diagnose(err error) (fence.UnavailableReason, error) {
	var known reasoned
	switch {
	case errors.As(err, &known):
		return known.UnavailableReason(), err
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fence.NoSpace, fmt.Errorf("etcd: out of space: nothing can be acquired, what is held stays held: "+
			"compact and defragment etcd, then run etcdctl alarm disarm: %w", err)
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return fence.Unreachable, fmt.Errorf("etcd: overloaded: it takes more requests than its disk and its other members keep up with: %w", err)
	case TooBig(err):
		return fence.Limited, fmt.Errorf("etcd: the server's limits are too low: one lock needs 3 for --max-txn-ops (128 by default), "+
			"and --max-request-bytes for its key, its holder and the value that it proclaims: %w", err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fence.Denied, fmt.Errorf("etcd: permission denied: the role of the client's user needs %s: %w", c.rights(), err)
	case isAny(err, unauthenticated):
		return fence.Denied, fmt.Errorf("etcd: not authenticated: give clientv3.Config the Username and Password of an etcd user, "+
			"or a TLS certificate whose common name is one: %w", err)
	case isAny(err, []error{context.DeadlineExceeded, context.Canceled}): // of one request, not of the caller's ctx
		return fence.Unreachable, fmt.Errorf("etcd: no answer from %s; %s", c.endpoints(), checkMembers)
	case codeOf(err) == codes.Unavailable:
		return fence.Unreachable, fmt.Errorf("etcd: no answer from a majority of the members behind %s: %w; %s", c.endpoints(), plainError{err}, checkMembers)
	}
	return "", err
}

func (c *Cluster) endpoints() string { return strings.Join(c.Client.Endpoints(), ", ") }

func (c *Cluster) rights() string {
	k := c.Keys
	locks := k.Locks()
	if k.Mutex {
		locks = "RESOURCE/ of every resource"
	}
	return fmt.Sprintf("readwrite on the prefixes %s and %s/void/, and read on the key %s", locks, k.Prefix, k.Epoch())
}

func isAny(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func codeOf(err error) codes.Code {
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// Stream returns a connection for a stream, and what to call at its end. A retry (again) has a connection of its
// own, to the next endpoint: on the client's it could meet the same member, which may be silent, or reject streams,
// as a learner does.
func (c *Cluster) Stream(again bool) (grpc.ClientConnInterface, func(), error) {
	own := c.Client.ActiveConnection()
	if !again {
		return own, func() {}, nil
	}
	endpoints := c.Client.Endpoints()
	if len(endpoints) == 0 {
		return nil, nil, errors.New("etcd: the client has no endpoints")
	}
	conn, err := c.Client.Dial(endpoints[int(c.turn.Add(1))%len(endpoints)])
	if err != nil {
		return nil, nil, err
	}
	ctx, done := context.WithCancel(context.Background())
	go func() { // until the stream ends or the client is closed
		state := own.GetState()
		for state != connectivity.Shutdown && own.WaitForStateChange(ctx, state) {
			state = own.GetState()
		}
		_ = conn.Close()
	}()
	return conn, done, nil
}

func (c *Cluster) Failed(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return c.Unanswered(ctx, op)
	}
	return c.Unavailable(op, err)
}

func (c *Cluster) Unavailable(op string, err error) error {
	switch {
	case c.Closed():
		return &fence.UnavailableError{Call: op, Err: ErrClientClosed}
	case !errors.Is(err, context.DeadlineExceeded):
		return c.Diagnose(op, err)
	}
	conn := c.Client.ActiveConnection()
	why, limit := stateText(conn.GetState()), " within "+c.RequestTimeout.String()
	if conn.GetState() == connectivity.TransientFailure {
		// gRPC shows the last connection error only by failing a request with it.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{}); err != nil {
			why, limit = plain(status.Convert(err).Message()), ""
		}
	}
	err = fmt.Errorf("etcd: no answer%s from %s: %s; %s", limit, c.endpoints(), why, checkMembers)
	return &fence.UnavailableError{Call: op, Reason: fence.Unreachable, Err: err}
}

// Unanswered returns the error after ctx ended without an answer from etcd. After a deadline it names the
// endpoints: a caller with deadlines below RequestTimeout would not learn otherwise that etcd is away.
func (c *Cluster) Unanswered(ctx context.Context, op string) error {
	end := session.EndOf(ctx)
	if !errors.Is(end, context.DeadlineExceeded) {
		return Ended(ctx, op)
	}
	state := stateText(c.Client.ActiveConnection().GetState())
	err := fmt.Errorf("etcd: no answer yet from %s: %s; %s: %w", c.endpoints(), state, checkMembers, end)
	return &fence.UnavailableError{Call: op, Reason: fence.Unreachable, Err: err}
}

const checkMembers = "check that a majority of etcd's members runs, and that the client's Endpoints are theirs"

func stateText(state connectivity.State) string {
	switch state {
	case connectivity.Ready:
		return "the connection is up, but silent"
	case connectivity.TransientFailure:
		return "the connection fails"
	default:
		return "the connection is not made yet"
	}
}

// plain strips gRPC's wrapping from a connection error, as in
//
//	connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused"
func plain(message string) string {
	_, inner, wrapped := strings.Cut(message, `connection error: desc = "`)
	if !wrapped {
		return message
	}
	inner = strings.TrimPrefix(strings.TrimSuffix(inner, `"`), "transport: ")
	inner = strings.TrimPrefix(inner, "Error while dialing: ")
	switch {
	case strings.HasPrefix(inner, "error reading server preface: ") && strings.HasSuffix(inner, ": use of closed network connection"):
		return "the server accepted the connection and did not answer on it"
	case inner == "authentication handshake failed: EOF", strings.HasSuffix(inner, ": tls: first record does not look like a TLS handshake"):
		return inner + " (http or https?)"
	}
	return strings.ReplaceAll(inner, `\"`, `"`)
}

type plainError struct{ error }

func (e plainError) Error() string { return plain(status.Convert(e.error).Message()) }

func (e plainError) Unwrap() error { return e.error }
