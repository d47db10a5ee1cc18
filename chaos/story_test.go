package chaos

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

func newStory() *story { return &story{recorder: history.NewRecorder(io.Discard)} }

// What is heard is each event that is wanted, from the beginning to the end of
// listening, once, in order, whoever waits and when.
func TestListener_HearsEachEventOnce(t *testing.T) {
	s := newStory()
	s.take(history.Event{Kind: history.Note, At: 1})
	l := s.listen(func(e history.Event) bool { return e.Kind == history.Note })
	for at := range int64(5) {
		s.take(history.Event{Kind: history.Note, At: 2 + at})
		s.take(history.Event{Kind: history.Phase, At: 2 + at})
	}
	for at := range int64(5) {
		e, err := l.next(t.Context())
		require.NoError(t, err)
		require.Equal(t, history.Event{Kind: history.Note, At: 2 + at}, e)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("for a reason"))
	_, err := l.next(ended)
	require.EqualError(t, err, "for a reason")
	go s.take(history.Event{Kind: history.Note, At: 7})
	e, err := l.next(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(7), e.At)
	l.stop()
	s.take(history.Event{Kind: history.Note, At: 8})
	require.Empty(t, l.queue)
	require.Empty(t, s.listeners)
}

func TestStory_IsInOrderOfTimes(t *testing.T) {
	s := newStory()
	for _, at := range []int64{3, 1, 2} {
		s.take(history.Event{At: at})
	}
	s.phase(history.PhaseLoad)
	var times []int64
	for _, e := range s.all() {
		times = append(times, e.At)
	}
	require.Equal(t, []int64{1, 2, 3}, times[:3])
	require.Equal(t, history.Event{Kind: history.Phase, Name: history.PhaseLoad, Process: history.Runner, At: times[3]}, s.all()[3])
}
