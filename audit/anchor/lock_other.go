//go:build !unix

package anchor

import (
	"errors"
	"os"
)

// lock fails: without it two processes could sign checkpoints that contradict each other.
func lock(*os.File) error { return errors.ErrUnsupported }

func unlock(*os.File) error { return nil }
