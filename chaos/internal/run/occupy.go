package run

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// occupy creates a directory, and keeps other suites out of it until free is called or this
// process ends. It fails with ErrConfig if another suite has it.
func occupy(dir string) (free func() error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w: another suite is writing to %s: wait for its end, or take another directory", workload.ErrConfig, dir)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	// A child process that is being started may have the descriptor for a moment longer than this one.
	return func() error { return errors.Join(syscall.Flock(int(d.Fd()), syscall.LOCK_UN), d.Close()) }, nil
}
