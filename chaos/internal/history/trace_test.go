package history

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func newTrace() *Trace { return NewTrace(io.Discard) }

// A listener gets each event that it wants, from Listen to Stop, once and in order.
func TestListener_GetsEachEventOnce(t *testing.T) {
	s := newTrace()
	s.Add(Event{Kind: Note, At: 1})
	l := s.Listen(func(e Event) bool { return e.Kind == Note })
	for at := range int64(5) {
		s.Add(Event{Kind: Note, At: 2 + at})
		s.Add(Event{Kind: Phase, At: 2 + at})
	}
	for at := range int64(5) {
		e, err := l.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, Event{Kind: Note, At: 2 + at}, e)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("for a reason"))
	_, err := l.Next(ended)
	require.EqualError(t, err, "for a reason")
	go s.Add(Event{Kind: Note, At: 7})
	e, err := l.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(7), e.At)
}

func TestTrace_EventsAreInTheOrderOfTheirTimes(t *testing.T) {
	s := newTrace()
	for _, at := range []int64{3, 1, 2} {
		s.Add(Event{At: at})
	}
	s.Phase(PhaseLoad)
	var times []int64
	for _, e := range s.Events() {
		times = append(times, e.At)
	}
	require.Equal(t, []int64{1, 2, 3}, times[:3])
	require.Equal(t, Event{Kind: Phase, Name: PhaseLoad, Process: Runner, At: times[3]}, s.Events()[3])
}
