package service

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guardhttp"
)

const (
	maxBody = 1 << 10 // bytes
	maxQty  = 1000
	maxSKU  = 100 // bytes

	keyHeader = "Idempotency-Key"
)

// orderRequest is what a client asks for.
type orderRequest struct {
	sku string
	qty int
	key string // the client's own name for this request
	// grants under which it is to run; none: one that we acquire. They prove nothing about
	// who sent them: a service that others than its own can reach has to authenticate them,
	// since a grant that was made up shuts the true holder out.
	grants []fence.Grant
}

// identity is what makes two requests the same. The grant is not part of it: after
// a rejection as stale the same request is sent with a newer one. The product is,
// since it is the resource that keys belong to.
func (o orderRequest) identity() []byte { return fmt.Appendf(nil, "deduct %d", o.qty) }

// newOrderID returns an id that no other order has. The client's key is not used
// for it, so that two orders for one key would show in the data.
func newOrderID() string { return rand.Text() }

func readOrder(w http.ResponseWriter, r *http.Request) (o orderRequest, err error) {
	if o.sku, err = readSKU(r); err != nil {
		return o, err
	}
	if o.key, err = readKey(r.Header); err != nil {
		return o, err
	}
	if o.grants, err = guardhttp.Grants(r.Header); err != nil {
		return o, err
	}
	o.qty, err = readQty(w, r)
	return o, err
}

func readSKU(r *http.Request) (string, error) {
	sku := r.PathValue("sku")
	if len(sku) > maxSKU {
		return "", badRequest("The sku has %d bytes, at most %d are allowed.", len(sku), maxSKU)
	}
	if err := fence.ValidateResource(Resource(sku)); err != nil {
		return "", badRequest("The sku has to be UTF-8 without control characters.")
	}
	return sku, nil
}

// maxKeyLen is how long a key of guard.Once may be, in bytes.
const maxKeyLen = 200

// readKey reads the key as draft-ietf-httpapi-idempotency-key-header has it, a
// string in quotes, or as most services do, without them.
func readKey(h http.Header) (string, error) {
	values := h.Values(keyHeader)
	if len(values) != 1 {
		return "", badRequest("The header %s is needed, once: a fresh random name for each new deduction, the same one when it is sent again.", keyHeader)
	}
	key := values[0]
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	outside := func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }
	if len(key) < 1 || len(key) > maxKeyLen || strings.ContainsFunc(key, outside) {
		return "", badRequest("%s has to be 1 to %d visible ASCII characters without quotes and backslashes.", keyHeader, maxKeyLen)
	}
	return key, nil
}

// readQty reads the body: {"qty": 2} and nothing else.
func readQty(w http.ResponseWriter, r *http.Request) (int, error) {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		return 0, newProblem(http.StatusUnsupportedMediaType, "media-type", "The body has to be JSON", "Send Content-Type: application/json.")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return 0, newProblem(http.StatusRequestEntityTooLarge, "too-large", "The body is too large", fmt.Sprintf("At most %d bytes are read.", maxBody))
	case err != nil:
		return 0, badRequest("The body could not be read to its end.")
	}
	return parseQty(body)
}

// parseQty reads token by token, since json.Unmarshal takes "QTY" for "qty" and
// the last of two.
func parseQty(body []byte) (int, error) {
	tokens := json.NewDecoder(bytes.NewReader(body))
	tokens.UseNumber()
	var number json.Number
	for _, want := range []func(json.Token) bool{
		func(t json.Token) bool { return t == json.Delim('{') },
		func(t json.Token) bool { return t == "qty" },
		func(t json.Token) (ok bool) { number, ok = t.(json.Number); return ok },
		func(t json.Token) bool { return t == json.Delim('}') },
	} {
		if token, err := tokens.Token(); err != nil || !want(token) {
			return 0, badRequest(`The body has to be {"qty": n} and nothing else.`)
		}
	}
	if _, err := tokens.Token(); err != io.EOF {
		return 0, badRequest("There is something after the JSON object.")
	}
	qty, err := strconv.Atoi(number.String())
	if err != nil || qty < 1 || qty > maxQty {
		return 0, badRequest("qty has to be a whole number from 1 to %d.", maxQty)
	}
	return qty, nil
}
