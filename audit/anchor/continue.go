package anchor

import (
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/note"

	"github.com/fencekit/fencekit/fence"
)

// Continue makes l, a log without signed records, the successor of the old log at path, whose
// public key is key. It removes unsigned records from l, and writes nothing else. The next run of
// Anchor compares the database with the heads of the old log. If it finds a violation or an
// unproven head, it records nothing; otherwise it records the last checkpoint of the old log, and
// then the heads of all resources.
//
// Continue fails with fence.ErrInvalid if l has signed records or its key has the name of key, with
// ErrNotProven if the old log doesn't match its last checkpoint, and with fs.ErrNotExist if the old
// log or its checkpoint is missing.
func (l *Log) Continue(path string, key note.Verifier) error {
	if l.signed.Size > 0 {
		return fmt.Errorf("%w: %s has records, and only a new log can continue another one", fence.ErrInvalid, l.path)
	}
	if key.Name() == l.signer.Name() {
		return fmt.Errorf("%w: the log that is continued has the same key's name, %s: a log needs one of its own", fence.ErrInvalid, key.Name())
	}
	last, err := readCheckpoint(path, key)
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	heads := map[string]knownHead{}
	_, _, err = replay(file, []*Checkpoint{last}, func(n int64, r record, _ []byte) {
		if n < last.Size {
			heads[r.Resource] = knownHead{Head: r.head(), elsewhere: true}
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	delete(heads, "") // the record that continues an older log has no resource
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	l.tree, l.length, l.heads, l.link = &tree{}, 0, heads, last
	return nil
}
