package anchor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
)

// Log is the log in a file, open to be written; no other Log is open on it. Its last checkpoint
// is in the file beside it that CheckpointFile names. Its methods must not be called
// concurrently. After an error of Anchor or Continue it must be closed, and may be opened
// again.
type Log struct {
	path   string
	file   *os.File
	signer *Signer
	tree   *tree
	length int64       // of the records, in bytes
	signed *Checkpoint // the last
	heads  map[string]knownHead
	link   *Checkpoint // of the log that this one continues, until it is recorded; nil if none
}

// knownHead is the last head of a resource that was recorded.
type knownHead struct {
	audit.Head
	elsewhere bool // in the log that this one continues, and not yet in this one
}

// CheckpointFile names the file of the last checkpoint of the log at path.
func CheckpointFile(path string) string { return path + ".checkpoint" }

// Open opens the log at path, and makes it if there is none. It reads all of it, and fails with
// ErrNotProven if it isn't what its last checkpoint was signed for, or one of those that were
// published; with ErrInUse if another process has it open; and with fence.ErrInvalid if path is
// no regular file. Records behind the last checkpoint, which a run left that was interrupted,
// stay; a last one that is not complete is removed.
func Open(path string, signer *Signer, published ...*Checkpoint) (*Log, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("anchor: %w", err)
	}
	l := &Log{path: path, file: file, signer: signer, heads: map[string]knownHead{}}
	if err := l.load(published); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return l, nil
}

// Close lets others open the log.
func (l *Log) Close() error { return l.file.Close() }

func (l *Log) load(published []*Checkpoint) error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: a log has to be a regular file", fence.ErrInvalid)
	}
	if err := lock(l.file); err != nil {
		return err
	}
	if l.signed, err = readCheckpoint(l.path, l.signer.public); errors.Is(err, fs.ErrNotExist) {
		err = l.begin()
	}
	if err != nil {
		return err
	}
	l.tree, l.length, err = replay(l.file, append(published, l.signed), func(_ int64, r record, _ []byte) {
		l.heads[r.Resource] = knownHead{Head: r.head()}
	})
	if err != nil {
		return err
	}
	delete(l.heads, "") // of a link
	return l.file.Truncate(l.length)
}

// begin signs a checkpoint of no records. So a log with records and without a checkpoint has
// lost it.
func (l *Log) begin() error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 {
		return fmt.Errorf("%w: the log has records, and %s is missing: restore it, or begin another log", ErrNotProven, CheckpointFile(l.path))
	}
	l.tree = &tree{}
	return l.sign()
}

func readCheckpoint(path string, key note.Verifier) (*Checkpoint, error) {
	text, err := os.ReadFile(CheckpointFile(path))
	if err != nil {
		return nil, err
	}
	c, err := ParseCheckpoint(string(text), key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", CheckpointFile(path), err)
	}
	return c, nil
}

// sign signs a checkpoint over all records, which are durable.
func (l *Log) sign() error {
	c, err := l.signer.sign(l.tree)
	if err != nil {
		return err
	}
	if err := replaceFile(CheckpointFile(l.path), c.Note); err != nil {
		return fmt.Errorf("anchor: writing the checkpoint: %w", err)
	}
	l.signed = c
	return nil
}

// replaceFile writes a file so that a crash leaves either what it was or what it is now.
func replaceFile(path, text string) error {
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
