package memory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

func (s *Store) Entries(ctx context.Context, name string, after int64, limit int) ([]storage.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: entries: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byName[name]
	if r == nil {
		return nil, nil
	}
	from := min(max(after, 0), int64(len(r.entries)))
	to := min(from+int64(max(limit, 0)), int64(len(r.entries)))
	entries := slices.Clone(r.entries[from:to])
	for i := range entries {
		entries[i].Ops = cloneOps(entries[i].Ops)
		entries[i].Hash = slices.Clone(entries[i].Hash)
	}
	return entries, nil
}

func (s *Store) Rejections(ctx context.Context, name string, limit int) ([]storage.Rejection, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: rejections: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byName[name]
	if r == nil {
		return nil, nil
	}
	var records []storage.Rejection
	for _, record := range slices.Backward(r.rejections) {
		records = append(records, *record)
	}
	return records[:min(len(records), max(limit, 0))], nil
}

func (r *resource) reject(reason storage.Reason, stage storage.Stage, grant fence.Grant, by fenceState) error {
	now := time.Now()
	record := &storage.Rejection{Reason: reason, Stage: stage, Grant: grant, Current: by.Grant, Since: by.since, First: now}
	same := func(o *storage.Rejection) bool {
		return o.Reason == reason && o.Stage == stage && o.Grant == grant && o.Current == by.Grant
	}
	if i := slices.IndexFunc(r.rejections, same); i >= 0 {
		record = r.rejections[i]
		r.rejections = slices.Delete(r.rejections, i, i+1)
	}
	record.Count++
	record.Last = now
	r.rejections = append(r.rejections, record)
	return &storage.RejectedError{Reason: reason, Stage: stage, Grant: grant, Current: by.Grant, Since: by.since, Age: now.Sub(by.since)}
}

func hashOf(e storage.Entry) []byte {
	text, err := json.Marshal(e)
	if err != nil {
		panic("memory: an entry has no JSON form: " + err.Error()) // At is past the year 9999
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

func cloneOps(ops []storage.OpRecord) []storage.OpRecord {
	clone := slices.Clone(ops)
	for i := range clone {
		clone[i].Attrs = maps.Clone(clone[i].Attrs)
	}
	return clone
}
