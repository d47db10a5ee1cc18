package anchor

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fencekit/fencekit/audit"
)

// Source is the database to anchor. *audit.Database implements it.
type Source interface {
	Heads(ctx context.Context) iter.Seq2[audit.Head, error]
	CompareHeads(ctx context.Context, known []audit.Head) (rewritten, unproven []audit.Head, err error)
}

// Run is the result of one run of Anchor.
type Run struct {
	Resources  int          // the number of resources in the database
	Recorded   int          // the number of heads that had moved and were recorded
	Violations []Violation  // in the order of their resources
	Unproven   []audit.Head // in the log, and no longer comparable, in the order of their resources
	Checkpoint *Checkpoint  // over all records of the log
}

// Anchor compares the last recorded head of each resource with the database, records each head that moved, and
// signs a checkpoint over the log.
//
//   - It is a violation if the resource is gone, if its fence is at a lower position, or if the
//     entry at the recorded position, or a prune's checkpoint directly after it, has another hash.
//   - It is unproven if the history has neither that entry nor such a checkpoint: more than
//     history_keep passed between two runs and a prune deleted them, or the history was replaced.
//
// Such a resource gets no record, so that each later run reports it again. Anchor fails with ErrNotProven if
// the file was changed or replaced since it was opened.
func (l *Log) Anchor(ctx context.Context, source Source) (*Run, error) {
	if err := l.unchanged(); err != nil {
		return nil, err
	}
	run := &Run{}
	moved, err := l.compare(ctx, source, run)
	if err != nil {
		return nil, err
	}
	if moved, err = l.contradicted(ctx, source, run, moved); err != nil {
		return nil, err
	}
	slices.SortFunc(run.Violations, func(a, b Violation) int { return cmp.Compare(a.Logged.Resource, b.Logged.Resource) })
	slices.SortFunc(run.Unproven, func(a, b audit.Head) int { return cmp.Compare(a.Resource, b.Resource) })
	run.Recorded = len(moved)
	if err := l.append(moved); err != nil {
		return nil, fmt.Errorf("anchor: writing the log: %w", err)
	}
	if l.tree.size > l.signed.Size {
		if err := l.sign(); err != nil {
			return nil, err
		}
	}
	run.Checkpoint = l.signed
	return run, nil
}

// unchanged fails with ErrNotProven if the file isn't the one that was read: logrotate ignores the lock.
func (l *Log) unchanged() error {
	ours, err := l.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	if !os.SameFile(ours, there) || ours.Size() != l.length {
		return fmt.Errorf("%w: %s was replaced or changed while it was open", ErrNotProven, l.path)
	}
	return nil
}

// compare returns the heads that moved, and adds those that went back or are gone to run.
func (l *Log) compare(ctx context.Context, source Source, run *Run) (moved []audit.Head, err error) {
	seen := make(map[string]bool, len(l.heads))
	for head, err := range source.Heads(ctx) {
		if err != nil {
			return nil, err
		}
		if !utf8.ValidString(head.Resource) {
			return nil, fmt.Errorf("anchor: resource %q is not in UTF-8, and can't be recorded", head.Resource)
		}
		run.Resources++
		seen[head.Resource] = true
		last, known := l.heads[head.Resource]
		switch {
		case head.Seq < last.Seq, known && head.Seq == last.Seq && head.Hash != last.Hash:
			run.Violations = append(run.Violations, Violation{last, head})
		case head.Seq > last.Seq:
			moved = append(moved, head)
		}
	}
	for name, last := range l.heads {
		if !seen[name] {
			run.Violations = append(run.Violations, Violation{Logged: last})
		}
	}
	return moved, nil
}

// contradicted moves resources whose histories don't prove the recorded head from moved to run.
func (l *Log) contradicted(ctx context.Context, source Source, run *Run, moved []audit.Head) ([]audit.Head, error) {
	var before []audit.Head
	for _, head := range moved {
		if last, known := l.heads[head.Resource]; known {
			before = append(before, last)
		}
	}
	rewritten, unproven, err := source.CompareHeads(ctx, before)
	if err != nil {
		return nil, err
	}
	run.Unproven = unproven
	bad := map[string]bool{}
	for _, head := range run.Unproven {
		bad[head.Resource] = true
	}
	for _, head := range rewritten {
		bad[head.Resource] = true
		run.Violations = append(run.Violations, Violation{l.heads[head.Resource], head})
	}
	return slices.DeleteFunc(moved, func(head audit.Head) bool { return bad[head.Resource] }), nil
}

func (l *Log) append(heads []audit.Head) error {
	at := time.Now().UTC().Truncate(time.Second)
	var lines [][]byte
	for _, head := range heads {
		lines = append(lines, headRecord(at, head).line())
	}
	if len(lines) == 0 {
		return nil
	}
	text := bytes.Join(lines, nil)
	if _, err := l.file.Write(text); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	for _, line := range lines {
		l.tree.add(bytes.TrimSuffix(line, []byte("\n")))
	}
	for _, head := range heads {
		l.heads[head.Resource] = head
	}
	l.length += int64(len(text))
	return nil
}

// Violation is a head in the log that the database contradicts.
type Violation struct {
	Logged audit.Head
	Found  audit.Head // the head in the database; zero if the resource is gone
}

// String describes v in one line.
func (v Violation) String() string {
	switch {
	case v.Found.Resource == "":
		return fmt.Sprintf("%s is gone: the log has position %d", v.Logged.Resource, v.Logged.Seq)
	case v.Found.Seq < v.Logged.Seq:
		return fmt.Sprintf("%s went back: the log has position %d, the database %d", v.Logged.Resource, v.Logged.Seq, v.Found.Seq)
	}
	return fmt.Sprintf("%s was rewritten: at position %d the log has hash %x, the database %x", v.Logged.Resource, v.Logged.Seq, v.Logged.Hash, v.Found.Hash)
}
