package record_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/record"
)

func ptr[T any](value T) *T { return &value }

// What is written is read again exactly, also what no guarded transaction can have written.
func TestLines_AreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	since := record.Time(math.MaxInt64) // infinity
	lines := []*record.Line{
		{Setting: &record.Setting{Epoch: 2, Token: math.MaxInt64, MaxTokenJump: 1}},
		{Resource: &record.Resource{Number: -5, Name: "sku/\"1\"\u2028<é>", Fence: &record.Fence{Number: -5, Hash: record.Hash{3}}, Checkpoint: &record.Checkpoint{First: 4, Hash: record.Hash{1}, PrunedAt: math.MinInt64}}},
		{Rejection: &record.Rejection{ID: 1, CurrentSince: &since, Count: 3}},
		{Operation: &record.Operation{Key: "k", Request: record.Hash{7}, Tx: math.MinInt64, At: 1}},
		{Entry: &record.Entry{Resource: 1, Seq: math.MaxInt64, Kind: record.Write, Tx: -1, Xid: math.MaxUint64, Ops: ptr(`[ {"a": "\u00e9"}  ]`), Hash: record.Hash{9, 9}}},
		{Entry: &record.Entry{Kind: record.Claim, Epoch: ptr(int64(0)), Token: ptr(int64(0)), Timeline: ptr(int32(0)), Holder: ptr(""), Name: ptr("x")}},
		{Hold: &record.Hold{Name: "sku/1", Reason: "case 7"}},
	}
	var b bytes.Buffer
	w, err := record.NewWriter(&b, record.Begin{Of: record.OfDatabase, At: record.TimeOf(time.Now())})
	require.NoError(t, err)
	for _, l := range lines {
		require.NoError(t, w.Write(l))
	}
	require.NoError(t, w.End())

	r := record.NewReader(&b)
	first, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, record.Format, first.Begin.Format)
	for _, want := range lines {
		got, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	end, err := r.Next()
	require.NoError(t, err)
	require.EqualValues(t, len(lines)+1, end.End.Lines)
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
}

// A reader goes on after a line that isn't one.
func TestReader_GoesOnBehindABadLine(t *testing.T) {
	t.Parallel()
	r := record.NewReader(strings.NewReader("hello\n{\"hold\":{\"name\":\"a\",\"reason\":\"\",\"role\":\"\",\"at\":\"2000-01-01T00:00:00.000000Z\"}}\n{\"hold\""))
	_, err := r.Next()
	require.ErrorIs(t, err, record.ErrLine)
	l, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, "a", l.Hold.Name)
	_, err = r.Next()
	require.ErrorIs(t, err, record.ErrLine)
	require.EqualValues(t, 3, r.Number())
	_, err = r.Next()
	require.True(t, errors.Is(err, io.EOF))
}

func TestTime_HasAllThatATimestampCanBe(t *testing.T) {
	t.Parallel()
	for text, at := range map[string]record.Time{
		"2000-01-01T00:00:00.000000Z":       0,
		"1999-12-31T23:59:59.999999Z":       -1,
		"microseconds:9223372036854775807":  math.MaxInt64,
		"microseconds:-9223372036854775808": math.MinInt64,
	} {
		require.Equal(t, text, at.String())
		var back record.Time
		require.NoError(t, back.UnmarshalText([]byte(text)))
		require.Equal(t, at, back)
	}
	for _, text := range []string{"", "yesterday", "microseconds:x", "2000-01-01T00:00:00.0000001Z"} {
		require.Error(t, new(record.Time).UnmarshalText([]byte(text)), text)
	}
}
