package guardgrpc

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencekit/fencekit/internal/transport"
)

var allCodes = map[*transport.Problem]codes.Code{
	nil:                      codes.OK,
	transport.InvalidGrant:   codes.InvalidArgument,
	transport.UnsignedGrant:  codes.PermissionDenied,
	transport.StaleGrant:     codes.Aborted,
	transport.RejectedGrant:  codes.Aborted,
	transport.KeyReused:      codes.FailedPrecondition,
	transport.UnknownOutcome: codes.Internal,
	transport.UnknownOnce:    codes.Unavailable,
	transport.Unavailable:    codes.Unavailable,
	transport.Stopping:       codes.Unavailable,
	transport.Internal:       codes.Internal,
}

// Code returns the code for an error of guard:
//
//   - InvalidArgument: a grant is missing, malformed, or for another resource.
//   - PermissionDenied: a grant's signature is missing or wrong ([SignatureError]).
//   - Aborted: the fence rejected a grant that travelled (guard.Guard.UnderGrant): its sender has
//     to acquire again.
//   - FailedPrecondition: the key of guard.Once was used for another request.
//   - Unavailable: call again. It is what guard.SafeToRetry allows; an unknown outcome with
//     guard.Once; a database that is away; a lock service that is away, or that an operator has to
//     fix; a resource that others have; a server that is stopping; a context that has ended.
//   - Internal: all else, an unknown outcome without guard.Once included.
//   - OK: no error.
//
// Ask for errors of your own first: those that it doesn't know are Internal, also those that
// are a status, since errors of an etcd client are.
func Code(err error) codes.Code { return allCodes[transport.Of(err)] }

// domain is whose reasons an ErrorInfo has.
const domain = "fencekit"

// retryDelay is for how long a client should wait.
const retryDelay = time.Second

// Error returns an error of guard as an error with a status, and nil for nil. ctx is that of
// the call. The details are
//
//   - an ErrorInfo of the domain fencekit, whose reason is one of INVALID_GRANT, UNSIGNED_GRANT,
//     STALE_GRANT, REJECTED_GRANT, KEY_REUSED, UNKNOWN_OUTCOME, UNAVAILABLE, STOPPING and INTERNAL; with
//     STALE_GRANT, if the call itself brought that grant, its metadata are epoch and token of the
//     grant, and current_epoch and current_token of what the resource is at;
//   - a RetryInfo, if the code is Unavailable.
//
// Nothing of err's text is in it, and the error that it returns doesn't wrap err.
func Error(ctx context.Context, err error) error {
	p := transport.Of(err)
	if p == nil {
		return nil
	}
	info := &errdetails.ErrorInfo{Domain: domain, Reason: strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))}
	sent := transport.SentGrants(metadata.ValueFromIncomingContext(ctx, key))
	if rejected, ok := transport.Superseded(err, sent); ok {
		info.Metadata = map[string]string{
			"epoch": strconv.FormatInt(rejected.Grant.Epoch, 10), "token": rejected.Grant.Token.String(),
			"current_epoch": strconv.FormatInt(rejected.Current.Epoch, 10), "current_token": rejected.Current.Token.String(),
		}
	}
	details := []protoadapt.MessageV1{info}
	if p.Again {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryDelay)})
	}
	message := p.Title
	if p.Detail != "" {
		message += ": " + p.Detail
	}
	s, _ := status.New(allCodes[p], message).WithDetails(details...) // it fails for OK only
	return s.Err()
}
