// Package guardgrpc carries grants in the metadata of gRPC calls, and says what errors of
// package guard are to a client. It is package guardhttp for gRPC.
//
// # Model
//
// A client that holds a resource sends its grant along ([WithGrants]). The service reads it
// ([Grants]) and writes under it (guard.Guard.UnderGrant), to a database of its own and
// without a lock service. As soon as a later grant has claimed the resource there,
// calls under the earlier one are rejected, however late they arrive.
//
// A method answers with its own errors first, and leaves the rest to [Error]:
//
//	grants, err := guardgrpc.Grants(ctx)
//	if err == nil {
//		err = guard.Do(ctx, g.UnderGrant(grants...), "sku/"+in.Sku, sell)
//	}
//	switch {
//	case errors.Is(err, errSoldOut):
//		return nil, status.Error(codes.ResourceExhausted, "sold out")
//	case err != nil:
//		return nil, guardgrpc.Error(ctx, err)
//	}
//
// # What is promised
//
//   - What Grants returns are valid grants, at most 100, of different resources. Everything
//     else in the metadata is an error: no part of it is guessed, dropped or repaired.
//   - [Code] is Unavailable, after which clients and proxies call again by themselves, only
//     where that does no harm: not after an unknown outcome of an operation without guard.Once,
//     which is Internal. A method that commits several transactions, as in a guard.Hold, has to
//     begin by reading what an earlier call has committed.
//   - What [Error] returns names no server, host, resource, holder, or cause. Log the error.
//
// # What is not promised
//
// A grant is neither authentication nor a secret: a client that can send one can make one up,
// and shut out true holders. So accept grants from authenticated callers only, or share a key
// with them ([WithSignedGrants], [SignedGrants]). Package guardhttp lists what else a receiver
// must not conclude from a grant.
//
// Incoming metadata are not passed on: a method that calls another service under the same
// grants gives them to WithGrants.
package guardgrpc
