package guardgrpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/transport"
)

// key is that of the metadata that grants travel in, one value per grant. It is the header of
// package guardhttp in lower case, so that gateways between the two can pass it on.
const key = "fencekit-grant"

// WithGrants returns a context whose outgoing metadata have grants, in place of those that
// ctx's have.
//
// Servers and proxies bound the size of all metadata together, often to 8 KiB; a grant
// takes about as many bytes as the names of its resource and holder, and 30 more.
func WithGrants(ctx context.Context, grants ...fence.Grant) context.Context {
	values := make([]string, len(grants))
	for i, grant := range grants {
		values[i] = grant.String()
	}
	return withValues(ctx, values)
}

func withValues(ctx context.Context, values []string) context.Context {
	md, ok := metadata.FromOutgoingContext(ctx) // a copy
	if !ok {
		md = metadata.MD{}
	}
	md.Delete(key)
	md.Append(key, values...)
	return metadata.NewOutgoingContext(ctx, md)
}

// Grants returns the grants that a call came with, given its context. If its metadata have
// none there are none, and no error. The error is a [*fence.InvalidGrantError], if a value
// isn't the text form of a grant, two grants are of one resource, or there are more than 100.
//
// Grants proves nothing about the caller: see the package documentation.
func Grants(ctx context.Context) ([]fence.Grant, error) {
	return transport.ParseGrants(metadata.ValueFromIncomingContext(ctx, key))
}

// WithSignedGrants is WithGrants with a signature of each grant, for receivers that don't trust the
// network. See guardhttp.SetSignedGrants.
func WithSignedGrants(ctx context.Context, key []byte, grants ...fence.Grant) (context.Context, error) {
	values, err := transport.SignGrants(key, grants)
	if err != nil {
		return nil, err
	}
	return withValues(ctx, values), nil
}

// SignedGrants is [Grants] for grants of which each is signed with one of keys; one that isn't is a
// [*SignatureError]. See guardhttp.SignedGrants.
func SignedGrants(ctx context.Context, keys ...[]byte) ([]fence.Grant, error) {
	return transport.ParseSignedGrants(metadata.ValueFromIncomingContext(ctx, key), keys)
}

// SignatureError says which grant was not signed, or with none of the receiver's keys. It is
// fence.ErrInvalid.
type SignatureError = transport.SignatureError
