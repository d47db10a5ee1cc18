package guardhttp

import (
	"encoding/json"
	"net/http"

	"github.com/fencekit/fencekit/internal/transport"
)

// statuses are those of the problems that are not the server's.
var statuses = map[*transport.Problem]int{
	nil:                      http.StatusOK,
	transport.InvalidGrant:   http.StatusBadRequest,
	transport.UnsignedGrant:  http.StatusForbidden,
	transport.StaleGrant:     http.StatusConflict,
	transport.RejectedGrant:  http.StatusConflict,
	transport.KeyReused:      http.StatusUnprocessableEntity,
	transport.UnknownOutcome: http.StatusInternalServerError,
	transport.UnknownOnce:    http.StatusServiceUnavailable,
	transport.Unavailable:    http.StatusServiceUnavailable,
	transport.Stopping:       http.StatusServiceUnavailable,
	transport.Internal:       http.StatusInternalServerError,
}

// Status returns the status for an error of guard:
//
//   - 400: a grant is missing, malformed, or for another resource.
//   - 403: a grant's signature is missing or wrong ([SignatureError]).
//   - 409: the fence rejected a grant that travelled (guard.Guard.UnderGrant): its sender has
//     to acquire again.
//   - 422: the key of guard.Once was used for another request.
//   - 503: send the same request again. It is what guard.SafeToRetry allows; an unknown outcome with
//     guard.Once; a database that is away; a lock service that is away, or that an operator has to
//     fix; a resource that others have; a server that is stopping; a context that has ended.
//   - 500: all else, an unknown outcome without guard.Once included.
//   - 200: no error.
//
// Ask for errors of your own first: those that it doesn't know are 500.
func Status(err error) int { return statuses[transport.Of(err)] }

// retryAfter is for how long a client should wait, in seconds.
const retryAfter = "1"

// problem is the body of an answer (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	*superseded
}

// superseded tells a client which grant of its own a later one has superseded. Tokens are
// strings, since they may exceed what a number of JavaScript can hold.
type superseded struct {
	Epoch        int64  `json:"epoch"`
	Token        string `json:"token"`
	CurrentEpoch int64  `json:"current_epoch"`
	CurrentToken string `json:"current_token"`
}

// Error answers a request with an error of guard, as application/problem+json. Its type is
// urn:fencekit:problem: and one of invalid-grant, unsigned-grant, stale-grant, rejected-grant,
// key-reused, unknown-outcome, unavailable and stopping; about:blank with 500 for what it doesn't know.
// 503 comes with Retry-After; stale-grant with epoch and token of the grant, and those that
// the resource is at, if the request itself brought that grant.
//
// Nothing of err's text is in the answer. For a nil error Error does nothing.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	p := transport.Of(err)
	if p == nil {
		return
	}
	body := problem{Type: "urn:fencekit:problem:" + p.Name, Title: p.Title, Status: statuses[p], Detail: p.Detail}
	if p == transport.Internal {
		body.Type, body.Title = "about:blank", http.StatusText(body.Status) // as RFC 9457, 4.2.1 has it
	}
	if rejected, ok := transport.Superseded(err, transport.SentGrants(r.Header.Values(Header))); ok {
		body.superseded = &superseded{
			Epoch: rejected.Grant.Epoch, Token: rejected.Grant.Token.String(),
			CurrentEpoch: rejected.Current.Epoch, CurrentToken: rejected.Current.Token.String(),
		}
	}
	data, _ := json.Marshal(body) // none of its types can fail
	h := w.Header()
	h.Del("Content-Length") // of an answer that the handler meant to give
	h.Del("Content-Encoding")
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if p.Again {
		h.Set("Retry-After", retryAfter)
	}
	w.WriteHeader(body.Status)
	_, _ = w.Write(append(data, '\n')) // a client that has gone is no concern of the handler's
}
