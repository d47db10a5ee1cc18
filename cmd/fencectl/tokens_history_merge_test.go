package main

import (
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

var noon = time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)

func entryAt(resource string, position int64, minute int) audit.Entry {
	return audit.Entry{Entry: storage.Entry{
		Grant: fence.Grant{Resource: resource}, Position: storage.Position{Seq: position}, Kind: storage.KindWrite, At: noon.Add(time.Duration(minute) * time.Minute),
	}}
}

func rejectionAt(resource string, id int64, minute int) audit.Rejection {
	return audit.Rejection{ID: id, Rejection: storage.Rejection{Grant: fence.Grant{Resource: resource}, First: noon.Add(time.Duration(minute) * time.Minute)}}
}

// sequence yields items, and then err unless it is nil.
func sequence[T any](err error, items ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
		if err != nil {
			yield(none, err)
		}
	}
}

// merged returns the cursors of the rows, and the error that ends them.
func merged(entries iter.Seq2[audit.Entry, error], rejections iter.Seq2[audit.Rejection, error], from historyEnd) (cursors []string, failed error) {
	for row, err := range merge(entries, rejections, from) {
		if err != nil {
			return cursors, err
		}
		cursors = append(cursors, row.Cursor)
	}
	return cursors, nil
}

// Rejections stand among the entries of their resource by time, also where the other sequence has
// nothing of the resource; entries stay in the order of their positions, whatever the clock did.
func TestMerge_PutsRejectionsAmongEntries(t *testing.T) {
	t.Parallel()
	entries := []audit.Entry{entryAt("b", 1, 0), entryAt("b", 2, 9), entryAt("b", 3, 5), entryAt("d", 1, 1)}
	rejections := []audit.Rejection{rejectionAt("a", 1, 50), rejectionAt("b", 7, 1), rejectionAt("b", 8, 7), rejectionAt("b", 9, 9), rejectionAt("c", 3, 0), rejectionAt("e", 2, 0)}
	cursors, err := merged(sequence(nil, entries...), sequence(nil, rejections...), historyEnd{})
	require.NoError(t, err)
	require.Equal(t, []string{"0.1@a", "1.0@b", "1.7@b", "1.8@b", "2.8@b", "3.8@b", "3.9@b", "0.3@c", "1.0@d", "0.2@e"}, cursors)

	cursors, err = merged(sequence(nil, entries[2:]...), sequence(nil, rejections[3:]...), historyEnd{"b", 2, 8})
	require.NoError(t, err)
	require.Equal(t, []string{"3.8@b", "3.9@b", "0.3@c", "1.0@d", "0.2@e"}, cursors, "behind a cursor")
}

func TestMerge_EndsWithTheErrorOfEither(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	entries := []audit.Entry{entryAt("b", 1, 0), entryAt("b", 2, 9)}
	for _, c := range []struct {
		entries, rejections error
		rejected            []audit.Rejection
		want                []string
	}{
		{lost, nil, nil, []string{"1.0@b", "2.0@b"}},
		{nil, lost, nil, nil},
		{nil, lost, []audit.Rejection{rejectionAt("b", 7, 1)}, []string{"1.0@b", "1.7@b"}},
		{nil, lost, []audit.Rejection{rejectionAt("c", 7, 1)}, []string{"1.0@b", "2.0@b", "0.7@c"}},
	} {
		cursors, err := merged(sequence(c.entries, entries...), sequence(c.rejections, c.rejected...), historyEnd{})
		require.ErrorIs(t, err, lost)
		require.Equal(t, c.want, cursors)
	}
}
