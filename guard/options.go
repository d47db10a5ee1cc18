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

const (
	maxOpIDLen      = 200
	maxAttrs        = 16
	maxAttrKeyLen   = 64
	maxAttrValueLen = 512
)

// ValueOption is an [Option], or [Once], which only [Value] and [Exec] take. An option that is out of
// bounds, and a second Once, OpID, OpName or OpAttr of one key, is ErrInvalid.
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
	Operation
	oneResource [1]string
	retryable   bool
	once        *storage.OnceKey
	result      result
	receipt     *storage.Receipt
}

type anyOption func(o *options) error

func (f anyOption) set(o *options) error { return f(o) }
func (anyOption) withoutValue()          {}

type holdOption struct{ anyOption }

func (holdOption) forHold() {}

// OpID gives the operation an id for the history: 1 to 200 bytes. It doesn't prevent a second effect: see [Once].
func OpID(id string) Option {
	return anyOption(func(o *options) error {
		if o.Record.ID != "" {
			return givenTwice("OpID")
		}
		o.Record.ID = id
		return checkText("OpID", id, maxOpIDLen)
	})
}

// OpName says in the history what kind of operation it is: 1 to 200 bytes.
func OpName(name string) Option {
	return anyOption(func(o *options) error {
		if o.Record.Name != "" {
			return givenTwice("OpName")
		}
		o.Record.Name = name
		return checkText("OpName", name, maxOpIDLen)
	})
}

// OpAttr adds a fact about the operation to the history: up to 16, with distinct keys of 1 to 64 bytes and values of
// up to 512 bytes.
func OpAttr(key, value string) Option {
	return anyOption(func(o *options) error {
		if err := checkText("key of OpAttr", key, maxAttrKeyLen); err != nil {
			return err
		}
		if value != "" {
			if err := checkText("value of OpAttr", value, maxAttrValueLen); err != nil {
				return err
			}
		}
		if _, ok := o.Record.Attrs[key]; ok {
			return givenTwice(fmt.Sprintf("OpAttr %q", key))
		}
		if len(o.Record.Attrs) == maxAttrs {
			return fmt.Errorf("%w: more than %d OpAttrs", ErrInvalid, maxAttrs)
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
//   - after an error in whose chain a method Retryable() bool returns true. Stores return such errors for deadlocks
//     and serialization failures, lock services for a lost queue position, and guard for a COMMIT that was not
//     applied;
//   - after ErrOvertaken, except on the Runner of a Hold, which would not repeat its earlier reads;
//   - under new grants, where the Guard acquires them: after ErrStaleToken, fence.ErrLeaseLost, and ErrFailedOver
//     with the reason failed over.
//
// It runs up to 8 times, with growing pauses. After other errors for which [SafeToRetry] is true the caller may
// call again. A Hold runs its whole function again, also after ErrUnknownOutcome, so start it by reading what earlier
// runs committed.
func Retryable() HoldOption {
	return holdOption{func(o *options) error {
		o.retryable = true
		return nil
	}}
}

// ReadOnly makes the operation read-only: a write in it fails. It moves no fence and has no entry in the history; only
// Observers get its OpName, OpID and OpAttr. It never shares its transaction. With [Once] it is ErrInvalid.
//
// With [Retryable], or as a postgres.Batch, it takes no lock on a [*Guard], unless the process owns the resources: it
// waits for no writer, except where nobody has claimed a resource yet; it runs under no grant ([Grants] is nil), and if a write overtakes it, it begins again, twice without
// and then under the lock. Under a grant a fence rejects it like any other.
//
// If the call returns nil, all guarded data was read at a single position of each fence, still the present one
// after the function ended. Other data may have changed between two statements, as the isolation level
// allows. If the call returns an error, don't use what was read. A rejection ends a Hold. After a read without a lock a
// COMMIT of unknown outcome of another process, or from before a restart, may still take effect; what this Guard was told
// is unknown can't. A function without Retryable, under the lock, rules out any such COMMIT.
//
// A read-only operation is never in doubt: without an answer the call fails with an error for which [SafeToRetry]
// is true, unless the function sent several statements in one text. After a failover an old primary that still runs
// may answer it: a read waits for synchronous standbys only where it looks at the fences first.
//
// On storage/postgres, advisory locks, calls to other systems and, above READ COMMITTED, NOTIFY take effect before
// the check. A function that writes to temporary tables or large objects makes the call fail; one that runs RESET
// ALL, with [ErrTxEnded].
func ReadOnly() Option {
	return anyOption(func(o *options) error {
		o.ReadOnly = true
		return nil
	})
}

// Receipt sets *to, before the call returns, to the receipt of the operation: the entries that the history has of it,
// one for each resource whose fence it moved; in a [Hold] and under the caller's grants, all of those. Its text form
// can be kept with what it is the receipt of; "fencectl audit verify --receipt" finds whether the history still has it.
// It costs no round trip.
//
// *to is nil unless this call was told that the operation's COMMIT took effect: after an error, if the answer is that of
// an earlier call ([Once]), and if the answer to COMMIT was lost, also where the call then found out that it had taken
// effect. The history has the operation's [OpID] in any case. With [ReadOnly] it is ErrInvalid.
func Receipt(to *storage.Receipt) Option {
	return anyOption(func(o *options) error {
		if to == nil {
			return fmt.Errorf("%w: Receipt without a place for it", ErrInvalid)
		}
		if o.receipt != nil {
			return givenTwice("Receipt")
		}
		*to, o.receipt = nil, to
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

const maxResultLen = 64 << 10

// Once makes an operation take effect at most once per key. The key (1 to 200 bytes) is the caller's own name for
// the operation, such as an Idempotency-Key header, and belongs to the resources of the call. If a call with the
// same key and request has taken effect, the function doesn't run: [Value] returns what it returned then, and
// [Exec] gives the operation its results. With another request the call fails with ErrKeyReused. So a caller
// without an answer may call again from any process, also after ErrUnknownOutcome.
//
// request is what was asked for, such as a request's body; its hash is kept. The names of the resources, on a
// Hold's Runner of all of the Hold's, are part of it.
//
// Key, hash and result are written in the operation's transaction. The store decides how long they are kept; after
// that the key names a new operation. Failed operations are not kept. An
// error of a repeated call says nothing about the call that it repeats. Without OpID the key is the operation's id in
// the history.
//
// Value keeps what its function returns as JSON of up to 64 KiB, so the function must return all that its caller
// uses. A larger value, or one that can't be encoded and decoded, fails the operation. A repeated Value fails if no
// result was kept, or one that doesn't decode into its type. Each call returns what that
// JSON decodes to, the first one too: in a Value[any] numbers are float64, and unexported fields are missing.
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

// addNamesToKey makes the names of the resources, and of those that the transaction seals, part of Once's request. What
// is hashed has one reading only: names in JSON, then a hash of fixed length.
func (o *options) addNamesToKey(sealed []string) {
	named, _ := json.Marshal([][]string{sealed, o.Resources}) // names are valid UTF-8
	o.once.Request = sha256.Sum256(append(named, o.once.Request[:]...))
}

func (o *options) encodeResult() ([]byte, error) {
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

func isNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || (value.Kind() == reflect.Pointer || value.Kind() == reflect.Func) && value.IsNil()
}
