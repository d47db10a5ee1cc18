package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
)

// Stream returns the connection for a stream, and what to call once the stream has ended.
//
// The first attempt to open one has the client's own connection, on which gRPC takes the members
// that are connected in turn, for all requests together. So a request beside each attempt could send
// all of them to the same member, which may reject streams, as a learner does, or be silent. An
// attempt after one that had no answer has a connection of its own to the next endpoint: as many
// as there are endpoints meet each member.
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
	go func() { // until the stream has ended, or the client is closed
		state := own.GetState()
		for state != connectivity.Shutdown && own.WaitForStateChange(ctx, state) {
			state = own.GetState()
		}
		_ = conn.Close()
	}()
	return conn, done, nil
}

// Unavailable is Diagnose; for a timeout it also asks the connection why there was no
// answer.
func (c *Cluster) Unavailable(op string, err error) error {
	switch {
	case c.Closed():
		return &fence.UnavailableError{Op: op, Err: ErrClientClosed}
	case errors.Is(err, context.DeadlineExceeded):
		return c.NoAnswer(op, "within "+c.RequestTimeout.String())
	}
	return c.Diagnose(op, err)
}

// NoAnswer is the error of op when there was no answer within limit. It names the
// endpoints, and the reason as far as it is known: the client's own errors say only that
// time ran out. The limit is left out if the connection has failed.
func (c *Cluster) NoAnswer(op, limit string) *fence.UnavailableError {
	why, failed := c.connection()
	if failed {
		limit = ""
	} else {
		limit = " " + limit
	}
	return &fence.UnavailableError{Op: op, Reason: fence.Unreachable, Err: fmt.Errorf("%w%s from %s: %s; %s", errNoAnswer, limit, c.endpoints(), why, checkMembers)}
}

// Unanswered is the error of op, such as "acquire sku/42", when ctx ended while etcd had
// not answered. If that was ctx's deadline it names the endpoints: otherwise a caller whose
// deadlines are shorter than Config.RequestTimeout would never learn that etcd is away. It
// makes no request, since ctx has ended.
func (c *Cluster) Unanswered(ctx context.Context, op string) error {
	end := EndOf(ctx)
	if !errors.Is(end, context.DeadlineExceeded) {
		return Ended(ctx, op)
	}
	return &fence.UnavailableError{
		Op:     op,
		Reason: fence.Unreachable,
		Err:    fmt.Errorf("%w yet from %s: %s; %s: %w", errNoAnswer, c.endpoints(), stateText(c.Client.ActiveConnection().GetState()), checkMembers, end),
	}
}

// connection returns the state of the connection to etcd, or why it failed.
func (c *Cluster) connection() (state string, failed bool) {
	conn := c.Client.ActiveConnection()
	now := conn.GetState()
	if now == connectivity.TransientFailure {
		// gRPC fails this at once with the last connection error, which it
		// shows in no other way. Any request does.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{}); err != nil {
			return plain(status.Convert(err).Message()), true
		}
	}
	return stateText(now), false
}

// checkMembers is what to do when there is no answer.
const checkMembers = "check that a majority of etcd's members runs, and that the client's Endpoints are theirs"

// stateText is a state of the connection in words.
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

// plain strips gRPC's wrapping from the reason why there is no connection:
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

// plainError is an error of the client without gRPC's wrapping.
type plainError struct{ error }

func (e plainError) Error() string { return plain(status.Convert(e.error).Message()) }

func (e plainError) Unwrap() error { return e.error }
