package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Snapshot writes etcd's own snapshot of its data to a file, as
// "etcdctl snapshot save" does. The file must not exist.
func (e *Server) Snapshot(ctx context.Context, file string) (err error) {
	client, err := e.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	from, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// Restore kills etcd, puts the snapshot in the place of its data as
// "etcdutl snapshot restore" does, and starts it on the same ports. With a bump
// above 0 revisions begin that much higher than in the snapshot, and all before
// are marked as compacted. It is for an etcd of one node.
func (e *Server) Restore(ctx context.Context, file string, bump uint64) error {
	s, ok := e.controller.(*process.Server)
	if !ok {
		return process.NotOurs("restore", EndpointsVar)
	}
	return s.WhileKilled(ctx, func() error {
		if err := os.RemoveAll(e.data); err != nil {
			return err
		}
		cmd, err := command(s.Dir(), "", "restore", file, e.data, e.seat.name, e.seat.peerURL, e.seat.cluster, strconv.FormatUint(bump, 10))
		if err != nil {
			return err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("testenv: %s: %w\n%s", cmd, err, out)
		}
		return nil
	})
}
