// Package guardhttp carries grants in the headers of HTTP requests, and says what errors of
// package guard are to a client.
//
// # Model
//
// A client that holds a resource sends its grant along ([SetGrants]). The service reads it
// ([Grants]) and writes under it (guard.Guard.UnderGrant), to a database of its own and
// without a lock service. As soon as a later grant has claimed the resource there,
// requests under the earlier one are rejected, however late they arrive.
//
// A handler answers with its own errors first, and leaves the rest to [Error]:
//
//	grants, err := guardhttp.Grants(r.Header)
//	if err == nil {
//		err = guard.Do(r.Context(), g.UnderGrant(grants...), "sku/"+sku, sell)
//	}
//	switch {
//	case errors.Is(err, errSoldOut):
//		http.Error(w, "sold out", http.StatusConflict)
//	case err != nil:
//		guardhttp.Error(w, r, err)
//	}
//
// # What is promised
//
//   - What Grants returns are valid grants, at most 100, of different resources. Everything
//     else in the header is an error: no part of it is guessed, dropped or repaired.
//   - [Status] is 503 only where the same request may be sent again without harm: not
//     after an unknown outcome of an operation without guard.Once, which is 500. A handler
//     that commits several transactions, as in a guard.Hold, has to begin by reading what an
//     earlier request has committed.
//   - What [Error] writes names no server, host, resource, holder, or cause. Log the error.
//
// # What is not promised
//
// A grant is neither authentication nor a secret, and a client that can send one can make
// one up: with a higher token it shuts out the true holder of the resource, with a higher
// epoch those of all resources, until an operator steps in (the database bounds how far a
// made-up one may jump, measured from what has claimed there: let a grant of your own claim
// first in a new database). So accept the header from authenticated senders only, and have
// the proxy at the edge remove it from all other requests; or share a key with the senders
// ([SetSignedGrants], [SignedGrants]). A receiver must not conclude from a grant that
//
//   - its sender still holds the lock, or ever did: only the claim and the seal of a
//     transaction under the grant decide, in the database that it writes to;
//   - its sender may do what it asks for, or its holder's name is true: the sender chose it;
//   - the resource is the one that the request is about: name the resource in the call,
//     and a grant for another is an error;
//   - a request without a grant needs none: a proxy may have dropped the header. Grants
//     returns none without an error then, and UnderGrant fails.
package guardhttp
