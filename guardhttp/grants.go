package guardhttp

import (
	"net/http"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/transport"
)

// Header is the header that a grant travels in, once per grant.
const Header = "Fencekit-Grant"

// SetGrants puts grants into the header of a request, in place of those that it has.
//
// Servers and proxies bound the size of all headers together, often to 8 KiB; a grant
// takes about as many bytes as the names of its resource and holder, and 30 more.
func SetGrants(h http.Header, grants ...fence.Grant) {
	h.Del(Header)
	for _, grant := range grants {
		h.Add(Header, grant.String())
	}
}

// Grants returns the grants that a request came with. Without the header there are none,
// and no error. The error is a [*fence.InvalidGrantError], if a value isn't the text form
// of a grant, two grants are of one resource, or there are more than 100.
//
// Grants proves nothing about the sender: see the package documentation.
func Grants(h http.Header) ([]fence.Grant, error) {
	return transport.ParseGrants(h.Values(Header))
}

// SetSignedGrants is SetGrants with a signature of each grant, for receivers that don't trust the
// network: an HMAC with SHA-256 over all of the grant. key is a secret of senders and receivers, of
// at least 16 random bytes; a shorter one is an error. A signature takes 44 bytes.
func SetSignedGrants(h http.Header, key []byte, grants ...fence.Grant) error {
	values, err := transport.SignGrants(key, grants)
	if err != nil {
		return err
	}
	h.Del(Header)
	for _, value := range values {
		h.Add(Header, value)
	}
	return nil
}

// SignedGrants is [Grants] for grants of which each is signed with one of keys; one that isn't is a
// [*SignatureError]. To change the key, first give receivers the new one beside the old one, then
// senders, and then take the old one from receivers.
//
// The signature says that a holder of the key has sent the grant to somebody. It doesn't cover the
// request: who can read the header can use the grant until a later one claims. Send it over TLS.
func SignedGrants(h http.Header, keys ...[]byte) ([]fence.Grant, error) {
	return transport.ParseSignedGrants(h.Values(Header), keys)
}

// SignatureError says which grant was not signed, or with none of the receiver's keys. It is
// fence.ErrInvalid.
type SignatureError = transport.SignatureError
