package guard

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// maxResultLen bounds the result that Once keeps, in bytes of its JSON form.
const maxResultLen = 64 << 10

// Once makes an operation take effect at most once per key. The key is the caller's own
// name for the operation (1 to 200 bytes), such as an Idempotency-Key header. If a call with
// the same key and the same request has taken effect, the function doesn't run: [Value]
// returns what it returned then, and [Exec] gives the operation its results. A call with the
// same key and another request fails with ErrKeyReused. So a caller that didn't get an answer
// may call again from any process, also after ErrUnknownOutcome.
//
// [Do] doesn't take it: what its function assigns to captured variables would stay unset
// when the function doesn't run. For the same reason a function of Value has to return all
// that its caller uses.
//
// request is what was asked for, such as a request's body; its hash is kept. A key belongs
// to a resource: with another resource it names another operation. With several resources
// the key is kept for each, and their names are part of the request. On the Runner of a Hold
// these are all resources of the Hold.
//
// Key, hash and result are written in the transaction of the operation. The store decides
// how long they are kept; after that the key names a new operation. A failed operation is
// not kept: the same call runs it again. An error of a repeated call says nothing about the
// call that it repeats: call again.
//
// Value keeps what its function returns as JSON of up to 64 KiB; a value that can't be
// encoded and decoded, or is larger, fails the operation. Each call with the key, the first one
// too, returns what that JSON decodes to: in a Value[any] numbers are float64, and what
// JSON leaves out, such as unexported fields, is not there. A repeated Value fails if the call that took
// effect kept no result, or one that doesn't decode into its type. A call has at most one
// Once. Without OpID the key is the operation's id in the history.
func Once(key string, request []byte) ValueOption {
	return onceOption(func(o *options) error {
		if o.once != nil {
			return givenTwice("Once")
		}
		o.once = &storage.OnceKey{Key: key, Request: sha256.Sum256(request)} // until forResources; mutant: once-takes-any-request
		return checkText("key of Once", key, maxOpIDLen)
	})
}

// onceOption is a ValueOption that is not an Option.
type onceOption func(o *options) error

func (f onceOption) set(o *options) error { return f(o) }

// keyFor returns the key of an operation that names resources, in a transaction that seals
// the fences of sealed: both are part of the request. What it hashes has one reading only, also
// if the caller chooses the request: names in JSON, then a hash, which has one length.
func keyFor(k storage.OnceKey, resources, sealed []string) storage.OnceKey {
	named, _ := json.Marshal([][]string{sealed, resources}) // names are valid UTF-8
	k.Request = sha256.Sum256(append(named, k.Request[:]...))
	return k
}

// forResources returns o for an operation that names resources, in a transaction that seals
// the fences of sealed.
func (o options) forResources(resources, sealed []string) options {
	if o.once != nil {
		key := keyFor(*o.once, resources, sealed)
		o.once = &key
	}
	return o
}

// keep returns the result of a call that is kept under its key, and sets it to what a repeated call
// will get.
func (o options) keep() ([]byte, error) {
	data, err := o.result.encode()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the result can't be kept for Once: %w", ErrInvalid, err)
	case len(data) > maxResultLen:
		return nil, fmt.Errorf("%w: the result has %d bytes, at most %d can be kept for Once", ErrInvalid, len(data), maxResultLen)
	}
	if err := o.result.decode(data); err != nil {
		return nil, fmt.Errorf("%w: the result can't be kept for Once, since a repeated call could not decode it: %w", ErrInvalid, err)
	}
	return data, nil
}

// decode sets the result of a call to one that was kept under its key.
func (o options) decode(grants []fence.Grant, kept []byte) error {
	if err := o.result.decode(kept); err != nil {
		return fmt.Errorf("guard: %s: the result that was kept under key %q doesn't fit; call with the type that it was kept with, or take a new key for a new operation: %w", names(grants), o.once.Key, err)
	}
	return nil
}

// result encodes the results of an operation for Once, and decodes kept ones.
type result struct {
	encode func() ([]byte, error)
	decode func([]byte) error
}

// noResult is that of an operation without results, which can't have Once.
var noResult result

var errNoResult = errors.New("the call that took effect was one without a result")

// opResult returns the result of an operation of the store's own kind.
func opResult[Tx any](op storage.Op[Tx]) result {
	if r, ok := op.(storage.ResultOp[Tx]); ok {
		return result{encode: r.Results, decode: r.SetResults}
	}
	return noResult
}

// valueResult returns the result that keeps *value as JSON.
func valueResult[V any](value *V) result {
	return result{
		encode: func() ([]byte, error) { return json.Marshal(*value) },
		decode: func(data []byte) error {
			if data == nil { // encode never returns nil without an error
				return errNoResult
			}
			var kept V // a new variable: *value may be what a failed run returned
			if err := json.Unmarshal(data, &kept); err != nil {
				return err
			}
			*value = kept
			return nil
		},
	}
}
