package queue

import (
	"fmt"
	"unicode/utf8"

	"github.com/fencekit/fencekit/fence"
)

// maxValueLen is the longest value that a leader can proclaim, in bytes.
const maxValueLen = 4096

func validateValue(value string) error {
	switch {
	case len(value) > maxValueLen:
		return fmt.Errorf("%w: the value to proclaim has %d bytes, at most %d are allowed", fence.ErrInvalid, len(value), maxValueLen)
	case !utf8.ValidString(value):
		return fmt.Errorf("%w: the value to proclaim is not valid UTF-8", fence.ErrInvalid)
	}
	return nil
}
