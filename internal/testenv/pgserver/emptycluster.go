package pgserver

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// emptyClusters are the empty data directories that this process has made, by the
// installation that made them. Servers start on copies: initdb takes ten times as long.
// So the servers of one process have the same system identifier.
var emptyClusters = struct {
	mu   sync.Mutex
	dirs map[string]*process.Dir
}{dirs: map[string]*process.Dir{}}

// initData makes an empty cluster, which is a copy of the first.
func initData(ctx context.Context, l *local) error {
	emptyClusters.mu.Lock()
	defer emptyClusters.mu.Unlock()
	dir := emptyClusters.dirs[l.bin.dir]
	if dir == nil {
		var err error
		if dir, err = makeEmptyCluster(ctx, l); err != nil {
			return err
		}
		if len(emptyClusters.dirs) == 0 {
			process.AfterTests(removeEmptyClusters)
		}
		emptyClusters.dirs[l.bin.dir] = dir
	}
	if err := os.Remove(l.data); err != nil {
		return err
	}
	return copyTree(ctx, dir.Path("data"), l.data)
}

// makeEmptyCluster doesn't sync: nothing in the cluster is worth a crash of the machine.
func makeEmptyCluster(ctx context.Context, l *local) (*process.Dir, error) {
	dir, err := process.NewDir()
	if err != nil {
		return nil, err
	}
	empty := &local{bin: l.bin, account: l.account, data: dir.Path("data")}
	err = empty.makeData(ctx, func(ctx context.Context, l *local) error {
		return l.tool(ctx, "initdb", "-D", l.data, "-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	})
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return dir, nil
}

// removeEmptyClusters removes them; the next server makes one again.
func removeEmptyClusters(context.Context) error {
	emptyClusters.mu.Lock()
	defer emptyClusters.mu.Unlock()
	var failed []error
	for _, dir := range emptyClusters.dirs {
		failed = append(failed, dir.Remove())
	}
	clear(emptyClusters.dirs)
	return errors.Join(failed...)
}
