package guardgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardgrpc"
	"github.com/fencekit/fencekit/storage"
)

const resource = "sku/42"

func grant(token fence.Token) fence.Grant {
	return fence.Grant{Resource: resource, Epoch: 1, Token: token, Holder: "host-of-ours-9f"}
}

// incoming is the context of a call that came with these values.
func incoming(t *testing.T, values ...string) context.Context {
	return metadata.NewIncomingContext(t.Context(), metadata.MD{"fencekit-grant": values})
}

func TestWithGrants_ReplacesWhatWasThere(t *testing.T) {
	t.Parallel()
	before := metadata.AppendToOutgoingContext(t.Context(), "fencekit-grant", "x", "other", "y")
	after := guardgrpc.WithGrants(before, grant(1), grant(2))
	md, _ := metadata.FromOutgoingContext(after)
	require.Equal(t, metadata.MD{"fencekit-grant": {grant(1).String(), grant(2).String()}, "other": {"y"}}, md)
	md, _ = metadata.FromOutgoingContext(before)
	require.Equal(t, []string{"x"}, md["fencekit-grant"], "the context that was given is as it was")
	md, _ = metadata.FromOutgoingContext(guardgrpc.WithGrants(after))
	require.Equal(t, metadata.MD{"other": {"y"}}, md)
	md, _ = metadata.FromOutgoingContext(guardgrpc.WithGrants(t.Context(), grant(1)))
	require.Equal(t, metadata.MD{"fencekit-grant": {grant(1).String()}}, md)
}

// The whole table, from one error of each kind. The texts name what a client must not see.
func TestError_TellsNothingOfServers(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial tcp 10.0.0.7:5432: password for user shop at postgres://shop:hunter2@db")
	rejected := func(reason storage.Reason, travelled bool) error {
		return &guard.RejectedError{Reason: reason, Grant: grant(7), Current: grant(9), Travelled: travelled, Err: secret}
	}
	for name, c := range map[string]struct {
		err    error
		code   codes.Code
		reason string
	}{
		"malformed":            {&fence.InvalidGrantError{Part: "text form", Reason: secret.Error()}, codes.InvalidArgument, "INVALID_GRANT"},
		"not signed":           {&guardgrpc.SignatureError{Grant: grant(7)}, codes.PermissionDenied, "UNSIGNED_GRANT"},
		"stale, travelled":     {rejected(storage.ReasonStale, true), codes.Aborted, "STALE_GRANT"},
		"collision, travelled": {rejected(storage.ReasonCollision, true), codes.Aborted, "REJECTED_GRANT"},
		"key reused":           {&storage.KeyReusedError{Resource: resource, Key: "hunter2"}, codes.FailedPrecondition, "KEY_REUSED"},
		"unknown":              {&guard.UnknownOutcomeError{Err: secret, AskErr: secret}, codes.Internal, "UNKNOWN_OUTCOME"},
		"unknown, Once":        {&guard.UnknownOutcomeError{Once: true, Err: secret, AskErr: secret}, codes.Unavailable, "UNKNOWN_OUTCOME"},
		"etcd away":            {&fence.UnavailableError{Call: "acquire hunter2", Err: secret}, codes.Unavailable, "UNAVAILABLE"},
		"etcd's own status":    {fmt.Errorf("%w", status.Error(codes.PermissionDenied, "hunter2")), codes.Internal, "INTERNAL"},
		"stopping":             {fmt.Errorf("%w: %w", guard.ErrClosed, secret), codes.Unavailable, "STOPPING"},
		"the function's own":   {secret, codes.Internal, "INTERNAL"},
	} {
		s := status.Convert(guardgrpc.Error(incoming(t, grant(7).String()), fmt.Errorf("selling at db: %w", c.err)))
		require.Equal(t, c.code, s.Code(), name)
		require.Equal(t, c.code, guardgrpc.Code(c.err), name)
		info, again := detailsOf(t, s)
		require.Equal(t, "fencekit", info.Domain, name)
		require.Equal(t, c.reason, info.Reason, name)
		var superseded map[string]string
		if c.reason == "STALE_GRANT" {
			superseded = map[string]string{"epoch": "1", "token": "7", "current_epoch": "1", "current_token": "9"}
		}
		require.Equal(t, superseded, info.Metadata, name)
		require.Equal(t, c.code == codes.Unavailable, again > 0, name)
		for _, leak := range []string{"hunter2", "10.0.0.7", "host-of-ours", "sku", "postgres", "etcd", "selling"} {
			require.NotContains(t, prototext.Format(s.Proto()), leak, name)
		}
	}
	require.NoError(t, guardgrpc.Error(t.Context(), nil))
	require.Equal(t, codes.OK, guardgrpc.Code(nil))
}

// detailsOf returns a status's ErrorInfo, and for how long to wait before another try.
func detailsOf(t *testing.T, s *status.Status) (info *errdetails.ErrorInfo, again time.Duration) {
	t.Helper()
	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			info = detail
		case *errdetails.RetryInfo:
			again = detail.RetryDelay.AsDuration()
		}
	}
	require.NotNil(t, info)
	return info, again
}

func TestSignedGrants_AreThoseOfOneOfTheKeys(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef")
	ctx, err := guardgrpc.WithSignedGrants(t.Context(), key, grant(1), fence.Grant{Resource: "b", Epoch: 1, Token: 2, Holder: "h"})
	require.NoError(t, err)
	md, _ := metadata.FromOutgoingContext(ctx)
	arrived := metadata.NewIncomingContext(t.Context(), md)
	grants, err := guardgrpc.SignedGrants(arrived, []byte("another of 16 b."), key)
	require.NoError(t, err)
	require.Len(t, grants, 2)
	require.Equal(t, grant(1), grants[0])
	_, err = guardgrpc.SignedGrants(incoming(t, grant(1).String()), key)
	require.ErrorAs(t, err, new(*guardgrpc.SignatureError))
	stale := &guard.RejectedError{Reason: storage.ReasonStale, Grant: grant(1), Current: grant(9), Travelled: true}
	info, _ := detailsOf(t, status.Convert(guardgrpc.Error(arrived, stale)))
	require.Equal(t, "9", info.Metadata["current_token"])
	_, err = guardgrpc.WithSignedGrants(t.Context(), nil, grant(1))
	require.ErrorIs(t, err, fence.ErrInvalid)
}
