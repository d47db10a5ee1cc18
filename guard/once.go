package guard

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/storage"
)

// MaxResultLen bounds the result that Once keeps, in bytes of its JSON form.
const MaxResultLen = 64 << 10

// Once makes an operation take effect at most once per key, which is the caller's
// own name for it (1 to MaxOpIDLen bytes), such as an Idempotency-Key header. If a
// call with the same key and the same request has taken effect, fn doesn't run:
// the call returns nil, and Value what fn returned then. A call with the same key
// and another request fails with ErrOpReuse. So a caller that didn't get its
// answer calls again, from whatever process, also after ErrUnknownOutcome.
//
// request is what was asked for, such as a request's body; its hash is kept. The
// key is a resource's own: with another resource it names another operation. With
// several (DoAll) it is kept for each, and they are part of the request.
//
// Key, hash and result are written in the transaction of the operation. How long
// they are kept is the store's to say; after that the key names a new operation.
// An operation that failed is not kept: the same call runs it again. An error of a
// repeated call says nothing about the one that it repeats: call again.
//
// Value keeps what fn returns as JSON: up to MaxResultLen bytes, and a value that
// can't be encoded, or is larger, fails the operation. A repeated Value fails if the
// call that took effect kept no result, as Do does, or one that doesn't decode into
// its type. A call has at most one Once; without OpID its key is the operation's id
// in the history.
func Once(key string, request []byte) Option {
	return func(o *options) error {
		if o.once != nil {
			return givenTwice("Once")
		}
		o.once = &storage.OnceKey{Key: key, Request: sha256.Sum256(request)}
		return checkText("key of Once", key, MaxOpIDLen)
	}
}

// over returns the key for an operation over several resources, which are part of
// its request.
func over(k storage.OnceKey, resources []string) storage.OnceKey {
	if len(resources) == 1 {
		return k
	}
	names, _ := json.Marshal(resources) // strings always can be
	k.Request = sha256.Sum256(append(names, k.Request[:]...))
	return k
}

// over returns the options for an operation over several resources.
func (o options) over(resources []string) options {
	if o.once != nil {
		key := over(*o.once, resources)
		o.once = &key
	}
	return o
}

// result is how the value that an operation returns is kept, and given back.
type result struct {
	encode func() ([]byte, error)
	decode func([]byte) error
}

// noResult is for operations without one.
var noResult = result{
	encode: func() ([]byte, error) { return nil, nil },
	decode: func([]byte) error { return nil },
}

var errNoResult = errors.New("the call that took effect was one without a result, such as a Do")

// resultIn keeps value as JSON.
func resultIn[V any](value *V) Option {
	return func(o *options) error {
		o.result = result{
			encode: func() ([]byte, error) {
				data, err := json.Marshal(*value)
				switch {
				case err != nil:
					return nil, fmt.Errorf("%w: the result can't be kept for Once: %w", ErrInvalid, err)
				case len(data) > MaxResultLen:
					return nil, fmt.Errorf("%w: the result has %d bytes as JSON, at most %d can be kept for Once", ErrInvalid, len(data), MaxResultLen)
				}
				return data, nil
			},
			decode: func(data []byte) error {
				if data == nil { // encode returns no such
					return errNoResult
				}
				var kept V // *value may be that of a run that came to nothing
				if err := json.Unmarshal(data, &kept); err != nil {
					return err
				}
				*value = kept
				return nil
			},
		}
		return nil
	}
}
