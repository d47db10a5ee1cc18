package environment

import (
	"io"
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/stretchr/testify/require"
)

func TestWithoutOutcome_NamesTheFirstOperation(t *testing.T) {
	s := New(Config{Workload: passer{}, Trace: history.NewTrace(history.NewRecorder(io.Discard))})
	s.Trace().Record(history.Event{Kind: history.Unknown, Process: "w1", Op: "op1", Class: "unknown outcome"})
	require.NoError(t, s.WithoutOutcome())
	s.Trace().Record(history.Event{Kind: history.Unknown, Process: "w2", Op: "op2", Class: worker.ClassNoOutcome, Error: "Operate panicked: this"})
	s.Trace().Record(history.Event{Kind: history.Unknown, Process: "w3", Op: "op3", Class: worker.ClassNoOutcome, Error: "Operate panicked: that"})
	err := s.WithoutOutcome()
	require.EqualError(t, err, `chaos: 2 operations of workload "passer" had no outcome; the first was op2: Operate panicked: this; for its stack see w2.log`)
}
