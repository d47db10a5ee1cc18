package pgserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
)

// Volume is a server's data as it was once. It goes with its server.
type Volume struct {
	server *local
	dir    string
}

// CopyData stops the server orderly, copies its data and starts it again: a backup
// of its volume. It fails unless the server's files are here.
func (p *Server) CopyData(ctx context.Context) (*Volume, error) {
	if p.local == nil {
		return nil, errNotLocal
	}
	v := &Volume{p.local, p.local.Dir().Path(fmt.Sprintf("copy-%016x", rand.Uint64()))}
	return v, p.local.WhileStopped(ctx, func() error { return copyTree(ctx, p.local.data, v.dir) })
}

// PutBack stops the server orderly, puts a copy of its data in the place of the
// present one and starts it again. A copy may be put back several times.
func (p *Server) PutBack(ctx context.Context, v *Volume) error {
	return p.putBack(ctx, v, func() error { return nil })
}

// putBack calls change before the start.
func (p *Server) putBack(ctx context.Context, v *Volume, change func() error) error {
	if p.local == nil {
		return errNotLocal
	}
	if p.local != v.server {
		return errors.New("testenv: this is a copy of another server's data")
	}
	return p.local.WhileStopped(ctx, func() error {
		if err := os.RemoveAll(p.local.data); err != nil {
			return err
		}
		if err := copyTree(ctx, v.dir, p.local.data); err != nil {
			return err
		}
		return change()
	})
}

// copyTree copies a directory with its owners and modes.
func copyTree(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: cp -a %s %s: %w: %s", from, to, err, out)
	}
	return nil
}
