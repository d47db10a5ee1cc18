package guard

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fencekit/fencekit/storage"
)

// Limits of what options may hold; lengths are in bytes.
const (
	MaxOpIDLen      = 200
	MaxNameLen      = 200
	MaxAttrs        = 16
	MaxAttrKeyLen   = 64
	MaxAttrValueLen = 512
)

// Option says something about one operation. What it says is checked when the
// operation is called, which fails with ErrInvalid if it is out of bounds, or if
// Once, OpID, Name or an Attr's key is given twice.
type Option func(*options) error

type options struct {
	record    storage.OpRecord
	retryable bool
	once      *storage.OnceKey
	result    result
}

// OpID gives the operation an id of the caller's, for the history: 1 to
// MaxOpIDLen bytes. It doesn't keep the operation from being run twice.
func OpID(id string) Option {
	return func(o *options) error {
		if o.record.ID != "" {
			return givenTwice("OpID")
		}
		o.record.ID = id
		return checkText("OpID", id, MaxOpIDLen)
	}
}

// Name says what kind of operation it is, for the history: 1 to MaxNameLen bytes.
func Name(name string) Option {
	return func(o *options) error {
		if o.record.Name != "" {
			return givenTwice("Name")
		}
		o.record.Name = name
		return checkText("Name", name, MaxNameLen)
	}
}

// Attr adds a fact about the operation to the history, up to MaxAttrs of them,
// each with a key of its own. An empty value is allowed.
func Attr(key, value string) Option {
	return func(o *options) error {
		if err := checkText("key of Attr", key, MaxAttrKeyLen); err != nil {
			return err
		}
		if value != "" {
			if err := checkText("value of Attr", value, MaxAttrValueLen); err != nil {
				return err
			}
		}
		if _, ok := o.record.Attrs[key]; ok {
			return givenTwice(fmt.Sprintf("Attr %q", key))
		}
		if len(o.record.Attrs) == MaxAttrs {
			return fmt.Errorf("%w: more than %d Attrs", ErrInvalid, MaxAttrs)
		}
		if o.record.Attrs == nil {
			o.record.Attrs = map[string]string{}
		}
		o.record.Attrs[key] = value
		return nil
	}
}

// Retryable says that the function may run again when a run of it is known to
// have taken no effect:
//
//   - after an error in whose chain a method Retryable() bool returns true, as
//     stores return for deadlocks and serialization failures, lock services for
//     a place in the queue that was lost, and as a COMMIT fails whose outcome was
//     in doubt and that turned out not to be applied;
//   - after ErrOvertaken, but not in a Hold, whose earlier reads would not be
//     read anew;
//   - after ErrStaleToken, ErrFailedOver and fence.ErrLeaseLost under a new grant,
//     but not in DoGrant and Hold, which have the one.
//
// It runs up to 8 times, with growing pauses in between.
func Retryable() Option {
	return func(o *options) error {
		o.retryable = true
		return nil
	}
}

func newOptions(opts []Option) (options, error) {
	o := options{result: noResult}
	for _, opt := range opts {
		if opt == nil {
			return options{}, fmt.Errorf("%w: nil Option", ErrInvalid)
		}
		if err := opt(&o); err != nil {
			return options{}, err
		}
	}
	if o.once != nil && o.record.ID == "" {
		o.record.ID = o.once.Key
	}
	return o, nil
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
