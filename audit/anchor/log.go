// Package anchor records the heads of a history in a log outside the database, so that an auditor can later
// prove that the history was not rewritten.
//
// # Model
//
// A hash chain can't reveal a rewrite by a role that may replace all of it: the owner of the schema, a
// superuser, or who restores an older dump. So an auditor keeps a [Log], a file outside the database. Each run
// of [Log.Anchor] appends a record for each resource whose head ([audit.Head]) has moved. The records are the
// leaves of a Merkle tree (RFC 6962), and each run ends with a signed [Checkpoint]: their number and the tree's
// root hash. With a copy of it and the public key an auditor can check:
//
//   - with the log, that no record was changed, removed or inserted since the checkpoint was
//     signed ([ReadHeads]), and then that the history still contains the recorded heads;
//   - with the log and a later checkpoint, that the log was only appended to in between.
//
// A log covers one schema of one database, and has its own key, whose name is its origin.
//
// # Formats
//
// A log is a file of JSON lines; each line, without its newline, is a leaf. The other formats are those of
// C2SP: tlog-checkpoint, and signed-note for keys and signatures.
// Further signatures of a checkpoint, such as those of witnesses, are kept and ignored.
//
// # Invariants
//
//   - A checkpoint covers all records that earlier checkpoints of the log cover, at the same
//     indexes. Open refuses a log that doesn't match its last checkpoint.
//   - A checkpoint is signed after its records were synced to disk, and replaces the previous one
//     atomically.
//   - A resource that went back or was rewritten, or whose recorded head can't be compared any
//     more, gets no further records, so that later runs report it again ([Run]).
//   - One Log at a time is open on a file.
//
// # What is not promised
//
// An anchor doesn't prove that a history was true when it was anchored, and a change that was made and undone
// between two runs goes unseen. Times of records are of the anchoring machine's clock. A person with both the
// log and its private key can forge another log; a checkpoint that was copied elsewhere reveals it.
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

var (
	// ErrNotProven means that a log or a checkpoint isn't what was signed with the key.
	ErrNotProven = errors.New("anchor: not what was signed")
	// ErrInUse means that this or another process has the log open.
	ErrInUse = errors.New("anchor: the log is in use")
)

// Log is an open log file, locked against other processes. It is not for concurrent use. After Anchor
// fails, close it and open it again.
type Log struct {
	path   string
	file   *os.File
	signer *Signer
	tree   *tree
	length int64       // of the records, in bytes
	signed *Checkpoint // the last one
	heads  map[string]audit.Head
}

// CheckpointFile returns the path of the last checkpoint of the log at path.
func CheckpointFile(path string) string { return path + ".checkpoint" }

// Create creates the log at path and opens it. It fails with fs.ErrExist if path exists. If opening fails, the
// empty log stays.
func Create(path string, signer *Signer) (*Log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("anchor: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("anchor: %w", err)
	}
	return Open(path, signer)
}

// Open opens the log at path and reads all of it. It fails
//
//   - with ErrNotProven if the log doesn't match its last checkpoint,
//   - with ErrInUse if the log is already open,
//   - with fs.ErrNotExist if there is no log: a new one would have nothing to compare with,
//   - with fence.ErrInvalid if path is a pipe or a device.
//
// Records that an interrupted run left after the last checkpoint stay; an incomplete last line is removed.
func Open(path string, signer *Signer) (*Log, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("anchor: %w", err)
	}
	l := &Log{path: path, file: file, signer: signer}
	if err := l.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), l.Close())
	}
	return l, nil
}

// Close closes the log and releases its lock.
func (l *Log) Close() error { return errors.Join(unlock(l.file), l.file.Close()) }

func (l *Log) load() error {
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
	l.heads = map[string]audit.Head{}
	l.tree, l.length, err = replay(l.file, []*Checkpoint{l.signed}, func(_ int64, r record) { l.heads[r.Resource] = r.head() })
	if err != nil {
		return err
	}
	return l.file.Truncate(l.length)
}

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

// sign signs and stores a checkpoint over all records, which must be durable.
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
