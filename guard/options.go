package guard

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/fencekit/fencekit/storage"
)

// Limits of options; lengths are in bytes.
const (
	maxOpIDLen      = 200
	maxAttrs        = 16
	maxAttrKeyLen   = 64
	maxAttrValueLen = 512
)

// ValueOption is an [Option], or [Once], which only [Value] and [Exec] take. An option that is out of
// bounds or given twice is ErrInvalid.
type ValueOption interface {
	set(o *options) error
}

// Option says something about one operation.
type Option interface {
	ValueOption
	withoutValue()
}

// HoldOption is an [Option] that a [Hold] takes too.
type HoldOption interface {
	Option
	forHold()
}

type options struct {
	Operation               // what the Observers are told; options set Resources, Record and ReadOnly
	name          [1]string // backs Resources if there is one
	retryable     bool
	releaseAtOnce bool
	once          *storage.OnceKey
	result        result // only with once
}

type anyOption func(o *options) error

func (f anyOption) set(o *options) error { return f(o) }
func (anyOption) withoutValue()          {}

type holdOption struct{ anyOption }

func (holdOption) forHold() {}

// OpID gives the operation an id for the history: 1 to 200 bytes. It doesn't prevent a second effect: see
// [Once].
func OpID(id string) Option {
	return anyOption(func(o *options) error {
		if o.Record.ID != "" {
			return givenTwice("OpID")
		}
		o.Record.ID = id
		return checkText("OpID", id, maxOpIDLen)
	})
}

// Name says in the history what kind of operation it is: 1 to 200 bytes.
func Name(name string) Option {
	return anyOption(func(o *options) error {
		if o.Record.Name != "" {
			return givenTwice("Name")
		}
		o.Record.Name = name
		return checkText("Name", name, maxOpIDLen)
	})
}

// Attr adds a fact about the operation to the history. An operation has up to 16, with distinct keys of 1
// to 64 bytes and values of up to 512 bytes, which may be empty.
func Attr(key, value string) Option {
	return anyOption(func(o *options) error {
		if err := checkText("key of Attr", key, maxAttrKeyLen); err != nil {
			return err
		}
		if value != "" {
			if err := checkText("value of Attr", value, maxAttrValueLen); err != nil {
				return err
			}
		}
		if _, ok := o.Record.Attrs[key]; ok {
			return givenTwice(fmt.Sprintf("Attr %q", key))
		}
		if len(o.Record.Attrs) == maxAttrs {
			return fmt.Errorf("%w: more than %d Attrs", ErrInvalid, maxAttrs)
		}
		if o.Record.Attrs == nil {
			o.Record.Attrs = map[string]string{}
		}
		o.Record.Attrs[key] = value
		return nil
	})
}

// Retryable lets the function run again when a run is known to have taken no effect:
//
//   - after an error in whose chain a method Retryable() bool returns true. Stores return such errors for
//     deadlocks and serialization failures, lock services for a lost queue position, and guard for a COMMIT
//     that was in doubt and was not applied;
//   - after ErrOvertaken, except on the Runner of a Hold, which would not repeat its earlier reads;
//   - after ErrStaleToken, fence.ErrLeaseLost, and ErrFailedOver with the reason failed over, under new
//     grants, where the Guard acquires them.
//
// It runs up to 8 times, with growing pauses. After other errors for which [SafeToRetry] is true, such as
// those of a database that is away, the caller may call again. A Hold runs its whole function again, also
// after ErrUnknownOutcome: use it there only if the function begins by reading what earlier runs committed.
func Retryable() HoldOption {
	return holdOption{func(o *options) error {
		o.retryable = true
		return nil
	}}
}

// ReleaseAtOnce releases the call's resources at its end, whatever Config.KeepFor says, unless other calls
// of the process wait for them: for resources that are used once, such as an order's. It has no effect on
// the Runner of a Hold, under grants and leases of the caller's, and for a batch in another call's
// transaction.
func ReleaseAtOnce() HoldOption {
	return holdOption{func(o *options) error {
		o.releaseAtOnce = true
		return nil
	}}
}

// ReadOnly makes the operation read-only: a write in it fails. A fence rejects it like any other operation,
// but it moves no fence and has no entry in the history. Its Name, OpID and Attr go to Observers only. It
// never shares its transaction. With [Once] it is ErrInvalid.
//
// If the call returns nil, all guarded data was read at a single position of each fence, which was still
// the present one after the function ended (G13). Data that isn't guarded may have changed between two
// statements, as the isolation level allows. If the call returns an error, don't use what the function has
// read. A rejection on the Runner of a Hold ends the Hold.
//
// A read-only operation is never in doubt: if the database doesn't answer, the call fails with an error for
// which [SafeToRetry] is true, unless the function sent several statements in one text. After a failover an
// old primary that still runs may answer it; other operations have to wait for synchronous standbys, if
// there are any.
//
// On storage/postgres, advisory locks and calls to other systems take effect before the check, and above
// READ COMMITTED so does NOTIFY. A function that writes to temporary tables or large objects makes the call
// fail at its end; one that runs RESET ALL, with [ErrTxEnded].
func ReadOnly() Option {
	return anyOption(func(o *options) error {
		o.ReadOnly = true
		return nil
	})
}

func givenTwice(option string) error {
	return fmt.Errorf("%w: %s was given twice", ErrInvalid, option)
}

func checkText(what, text string, limit int) error {
	switch {
	case text == "":
		return fmt.Errorf("%w: %s is empty", ErrInvalid, what)
	case len(text) > limit:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrInvalid, what, len(text), limit)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrInvalid, what)
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("%w: %s contains a zero byte", ErrInvalid, what)
	}
	return nil
}

// maxResultLen bounds the result that Once keeps, in bytes of its JSON form.
const maxResultLen = 64 << 10

// Once makes an operation take effect at most once per key. The key (1 to 200 bytes) is the caller's own
// name for the operation, such as an Idempotency-Key header, and belongs to the resources of the call. If a
// call with the same key and request has taken effect, the function doesn't run: [Value] returns what it
// returned then, and [Exec] gives the operation its results. With another request the call fails with
// ErrKeyReused. So a caller without an answer may call again from any process, also after
// ErrUnknownOutcome.
//
// request is what was asked for, such as a request's body; its hash is kept. The names of the resources (on
// the Runner of a Hold, of all of the Hold's) are part of the request.
//
// Key, hash and result are written in the operation's transaction. The store decides how long they are
// kept; after that the key names a new operation. A failed operation isn't kept, and an error of a repeated
// call says nothing about the call that it repeats. Without OpID the key is the operation's id in the
// history.
//
// Value keeps what its function returns as JSON of up to 64 KiB, so the function must return all that its
// caller uses; [Do], whose function returns nothing, doesn't take Once. A larger value, or one that can't
// be encoded and decoded, fails the operation. Each call, the first one too, returns what that JSON decodes
// to: in a Value[any] numbers are float64, and unexported fields are missing. A repeated Value fails if no
// result was kept, or one that doesn't decode into its type.
func Once(key string, request []byte) ValueOption {
	return onceOption(func(o *options) error {
		if o.once != nil {
			return givenTwice("Once")
		}
		o.once = &storage.OnceKey{Key: key, Request: sha256.Sum256(request)} // until nameKey; mutant: once-takes-any-request
		return checkText("key of Once", key, maxOpIDLen)
	})
}

type onceOption func(o *options) error

func (f onceOption) set(o *options) error { return f(o) }

// nameKey makes the names of the resources, and of those that the transaction seals, part of Once's
// request. The bytes hashed have one reading only: names in JSON, then a hash of fixed length.
func (o *options) nameKey(sealed []string) {
	named, _ := json.Marshal([][]string{sealed, o.Resources}) // names are valid UTF-8
	o.once.Request = sha256.Sum256(append(named, o.once.Request[:]...))
}

// keep returns the result to be kept, and sets the call's own result to what a repeated call will get.
func (o *options) keep() ([]byte, error) {
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

type result struct {
	encode func() ([]byte, error)
	decode func([]byte) error
}

// noResult is for operations that can't have Once.
var noResult result

var errNoResult = errors.New("the call that took effect was one without a result")

func opResult[Tx any](op storage.Op[Tx]) result {
	if r, ok := op.(storage.ResultOp[Tx]); ok {
		return result{encode: r.Results, decode: r.SetResults}
	}
	return noResult
}

func valueResult[V any](value *V) result {
	return result{
		encode: func() ([]byte, error) { return json.Marshal(*value) },
		decode: func(data []byte) error {
			if data == nil {
				return errNoResult
			}
			var kept V // *value may hold what a failed run returned
			if err := json.Unmarshal(data, &kept); err != nil {
				return err
			}
			*value = kept
			return nil
		},
	}
}

// isNil reports whether v is nil or holds a nil pointer or function.
func isNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || (value.Kind() == reflect.Pointer || value.Kind() == reflect.Func) && value.IsNil()
}
