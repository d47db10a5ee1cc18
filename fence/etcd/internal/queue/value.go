package queue

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxValueLen is the longest value that a leader can proclaim, in bytes.
const MaxValueLen = 4096

// ErrInvalidValue: a value can't be proclaimed. See InvalidValueError.
var ErrInvalidValue = errors.New("etcd: invalid value")

// InvalidValueError says why a value can't be proclaimed. It is ErrInvalidValue.
type InvalidValueError struct{ Reason string }

func (e *InvalidValueError) Error() string { return "etcd: invalid value: it " + e.Reason }

// Is reports whether target is ErrInvalidValue.
func (e *InvalidValueError) Is(target error) bool { return target == ErrInvalidValue }

func validateValue(value string) error {
	switch {
	case len(value) > MaxValueLen:
		return &InvalidValueError{Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(value), MaxValueLen)}
	case !utf8.ValidString(value):
		return &InvalidValueError{Reason: "is not valid UTF-8"}
	}
	return nil
}
