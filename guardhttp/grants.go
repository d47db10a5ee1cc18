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
