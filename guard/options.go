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

// Limits of what options may hold; lengths are in bytes.
const (
	maxOpIDLen      = 200
	maxAttrs        = 16
	maxAttrKeyLen   = 64
	maxAttrValueLen = 512
)

// ValueOption is an [Option], or [Once], which only [Value] and [Exec] take. An option that
// is out of bounds, or a second Once, OpID, Name or Attr of one key, is ErrInvalid.
type ValueOption interface {
	set(o *options) error
}

// Option says something about one operation.
type Option interface {
	ValueOption
	withoutValue()
}

// HoldOption is an [Option] that a [Hold] takes as well.
type HoldOption interface {
	Option
	forHold()
}

type options struct {
	Operation               // what the Observers are told of it: its Resources, Record and ReadOnly, in the beginning
	name          [1]string // what Resources is a slice of if it is one
	retryable     bool
	releaseAtOnce bool
	once          *storage.OnceKey
	result        result // if it has Once
}

type anyOption func(o *options) error

func (f anyOption) set(o *options) error { return f(o) }
func (anyOption) withoutValue()          {}

type holdOption struct{ anyOption }

func (holdOption) forHold() {}

// OpID gives the operation an id for the history: 1 to 200 bytes. It doesn't keep the
// operation from taking effect twice: see [Once].
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

// Attr adds a fact about the operation to the history. An operation has up to 16, each with
// a key of its own, of 1 to 64 bytes, and a value of up to 512 bytes, which may be empty.
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

// Retryable says that the function may run again when a run of it is known to have taken
// no effect:
//
//   - after an error in whose chain a method Retryable() bool returns true. Stores return
//     such errors for deadlocks and serialization failures, lock services for a lost queue
//     position, and guard for a COMMIT that was in doubt and was not applied;
//   - after ErrOvertaken, except on the Runner of a Hold, which would not repeat its
//     earlier reads;
//   - after ErrStaleToken, fence.ErrLeaseLost, and ErrFailedOver with the reason failed over,
//     under new grants, where the Guard acquires them.
//
// It runs up to 8 times, with growing pauses in between. After other errors for which
// [SafeToRetry] is true, such as those of a database that is away, the caller may call
// again. A Hold runs its whole function again, also after ErrUnknownOutcome: give it to a
// Hold only if its function begins by reading what earlier runs have committed.
func Retryable() HoldOption {
	return holdOption{func(o *options) error {
		o.retryable = true
		return nil
	}}
}

// ReleaseAtOnce releases the call's resources at its end, whatever Config.KeepFor is, unless other calls of
// the process wait for them: for resources that are used once, such as an order's. It has no effect on the
// Runner of a Hold, under grants and leases of the caller's, and for a batch in another call's transaction.
func ReleaseAtOnce() HoldOption {
	return holdOption{func(o *options) error {
		o.releaseAtOnce = true
		return nil
	}}
}

// ReadOnly makes the operation read-only: a write in it fails. A fence rejects it like any other
// operation, but it moves no fence and has no entry in the history.
//
// If the call returns nil, the function has read all guarded data at a single position of each
// fence, and the fences were still there after it ended: meanwhile no other holder had claimed, and
// no other transaction had committed under the same grants (G13). Data that isn't guarded may have
// changed between two statements, as the isolation level allows. If the call returns an error,
// don't use what the function has read. A rejection on the Runner of a Hold ends the Hold.
//
// A read-only operation is never in doubt: if the database doesn't answer, the call fails with an
// error for which [SafeToRetry] is true, unless the function sent several statements in one text.
//
// After a failover an old primary that still runs may answer read-only operations. Others, even if
// they only read, it can't answer where synchronous standbys are set up, since they wait for one.
//
// ReadOnly and [Once] together are ErrInvalid. Only the Observer gets its Name, OpID and Attr. It never
// shares its transaction.
//
// On storage/postgres, advisory locks and calls to other systems take effect before the check. Above
// READ COMMITTED so does NOTIFY, which stays even if the check fails. If the function writes to
// temporary tables or large objects, the call fails at its end; if it runs RESET ALL, with [ErrTxEnded].
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

// Once makes an operation take effect at most once per key. The key is the caller's own
// name for the operation (1 to 200 bytes), such as an Idempotency-Key header. If a call with
// the same key and the same request has taken effect, the function doesn't run: [Value]
// returns what it returned then, and [Exec] gives the operation its results. A call with the
// same key and another request fails with ErrKeyReused. So a caller that didn't get an answer
// may call again from any process, also after ErrUnknownOutcome.
//
// [Do] doesn't take it: what its function assigns to captured variables would stay unset
// when the function doesn't run. So a function of Value has to return all that its caller uses.
//
// request is what was asked for, such as a request's body; its hash is kept. A key belongs
// to a resource: with another one it names another operation. With several resources, which
// are all of the Hold's on its Runner, the key is kept for each, and their names are part of
// the request.
//
// Key, hash and result are written in the transaction of the operation. The store decides
// how long they are kept; after that the key names a new operation. A failed operation is
// not kept. An error of a repeated call says nothing about the call that it repeats.
//
// Value keeps what its function returns as JSON of up to 64 KiB; a value that can't be
// encoded and decoded, or is larger, fails the operation. Each call, the first one too, returns
// what that JSON decodes to: in a Value[any] numbers are float64, and what JSON leaves out, such
// as unexported fields, is not there. A repeated Value fails if no result was kept, or one that
// doesn't decode into its type. Without OpID the key is the operation's id in the history.
func Once(key string, request []byte) ValueOption {
	return onceOption(func(o *options) error {
		if o.once != nil {
			return givenTwice("Once")
		}
		o.once = &storage.OnceKey{Key: key, Request: sha256.Sum256(request)} // until nameKey; mutant: once-takes-any-request
		return checkText("key of Once", key, maxOpIDLen)
	})
}

// onceOption isn't an Option.
type onceOption func(o *options) error

func (f onceOption) set(o *options) error { return f(o) }

// nameKey makes the names of the resources, and of those whose fences the transaction seals, part of the
// request of Once. What it hashes has one reading only: names in JSON, then a hash, which has one length.
func (o *options) nameKey(sealed []string) {
	named, _ := json.Marshal([][]string{sealed, o.Resources}) // names are valid UTF-8
	o.once.Request = sha256.Sum256(append(named, o.once.Request[:]...))
}

// keep returns the result of a call that is kept under its key, and sets it to what a repeated call
// will get.
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

// result encodes the results of an operation for Once, and decodes kept ones.
type result struct {
	encode func() ([]byte, error)
	decode func([]byte) error
}

// noResult: an operation without results can't have Once.
var noResult result

var errNoResult = errors.New("the call that took effect was one without a result")

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

// isNil reports whether v, an interface value, is nil or holds a nil pointer or function.
func isNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || (value.Kind() == reflect.Pointer || value.Kind() == reflect.Func) && value.IsNil()
}
