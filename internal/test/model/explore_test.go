package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// toy is two processes that each add 1 to a number, by a read and a write.
type toy struct {
	atomic bool
	alike  bool // give both steps of a process one name
}

type toyState struct {
	Number int8
	At     [2]int8 // 0 before, 1 has read, 2 done
	Read   [2]int8
}

func (toy) Start() toyState { return toyState{} }

func (m toy) Next(s toyState, yield func(Step, toyState)) {
	for i := range s.At {
		next := s
		name := Step{clientNames[i], "reads #", s.Number}
		switch {
		case s.At[i] == 0 && m.atomic:
			next.At[i], next.Number = 2, s.Number+1
		case s.At[i] == 0:
			next.At[i], next.Read[i] = 1, s.Number
		case s.At[i] == 1:
			name.What = "writes #"
			next.At[i], next.Number, next.Read[i] = 2, s.Read[i]+1, 0
		default:
			continue
		}
		if m.alike {
			name = Step{Who: "a client", What: "moves"}
		}
		yield(name, next)
	}
}

func (toy) Judge(s toyState, final bool) Violation {
	if final && s.Number != 2 {
		return LostUpdate
	}
	return Holds
}

func (toy) Canonical(s toyState) toyState {
	if s.At[0] > s.At[1] || s.At[0] == s.At[1] && s.Read[0] > s.Read[1] {
		s.At[0], s.At[1] = s.At[1], s.At[0]
		s.Read[0], s.Read[1] = s.Read[1], s.Read[0]
	}
	return s
}

func (toy) Show(toyState) string { return "shown" }

func TestExplore_FindsAShortestCounterExample(t *testing.T) {
	result, err := Explore(toy{}, 100)
	require.NoError(t, err)
	require.Equal(t, LostUpdate, result.Violation)
	require.Len(t, result.Schedule, 4)
	require.Equal(t, 4, result.Depth)
	require.Equal(t, "  1. client 1: reads 0\n              shown\n", Format(result.Schedule[:1]))
}

func TestExplore_VisitsOneStateOfEachClass(t *testing.T) {
	result, err := Explore(toy{atomic: true}, 100)
	require.NoError(t, err)
	require.Equal(t, Holds, result.Violation)
	require.Nil(t, result.Schedule)
	require.Equal(t, 3, result.States, "none, one or both have added")
	require.Equal(t, 2, result.Depth)
	require.Equal(t, map[string]int{"reads #": 3}, result.Taken)
	_, err = Explore(toy{atomic: true}, 2)
	require.ErrorContains(t, err, "nothing is known")
}

func TestReplay_RejectsStepsThatAreImpossibleOrAmbiguous(t *testing.T) {
	reads, writes := Step{clientNames[0], "reads #", 0}, Step{clientNames[0], "writes #", 0}
	verdicts, err := Replay(toy{}, []Step{reads, writes})
	require.NoError(t, err)
	require.Equal(t, []Violation{Holds, Holds}, verdicts)

	verdicts, err = Replay(toy{}, []Step{reads, reads})
	require.ErrorContains(t, err, "step 2 (client 1: reads 0) is possible in 0 ways")
	require.Len(t, verdicts, 1)

	_, err = Replay(toy{alike: true}, []Step{{Who: "a client", What: "moves"}})
	require.ErrorContains(t, err, "in 2 ways")
}

// plain is a model without its symmetry that notes steps of one name.
type plain[S comparable] struct {
	Model[S]
	shared *[]Step
}

func (m plain[S]) Canonical(s S) S { return s }

func (m plain[S]) Next(s S, yield func(Step, S)) {
	seen := map[Step]bool{}
	m.Model.Next(s, func(step Step, next S) {
		if seen[step] {
			*m.shared = append(*m.shared, step)
		}
		seen[step] = true
		yield(step, next)
	})
}

// sameWithoutSymmetry explores m both ways and compares.
func sameWithoutSymmetry[S comparable](t *testing.T, m Model[S]) {
	t.Helper()
	var shared []Step
	full, err := Explore(plain[S]{m, &shared}, stateLimit)
	require.NoError(t, err)
	require.Empty(t, shared, "steps that share a name")
	reduced, err := Explore(m, stateLimit)
	require.NoError(t, err)
	require.Equal(t, full.Violation, reduced.Violation)
	require.Equal(t, len(full.Schedule), len(reduced.Schedule))
	require.Less(t, reduced.States, full.States)
}

func TestModels_StepsHaveNamesAndProcessesHaveNone(t *testing.T) {
	busy := Faults{LostReplies: true, LostClaims: true, SharedGrants: true, ReissuedTokens: true, Aborts: true, Held: true, Failover: true}
	counted := within(2, 1, 2, busy)
	counted.Mutation = Mutation{TxCounter: true}
	sameWithoutSymmetry(t, within(2, 2, 1, busy))
	sameWithoutSymmetry(t, counted)
	sameWithoutSymmetry(t, within(2, 2, 1, Faults{LostReplies: true, Crashes: true, Pruning: 1}).onTwo())
	sameWithoutSymmetry(t, within(2, 1, 2, Faults{SharedGrants: true, OutsideReads: true, Restore: true}).once(2))
	sameWithoutSymmetry(t, within(2, 1, 2, Faults{LostReplies: true, Aborts: true}).onTwo().mixed())
	sameWithoutSymmetry(t, within(2, 2, 1, Faults{LostReplies: true, SharedGrants: true, Aborts: true}).onTwo().own())
}

func TestProtocol_OperationWithoutAnAnswerAtTheEndIsStuck(t *testing.T) {
	m := within(1, 1, 1, Faults{})
	s := m.Start()
	s.Ops = 1
	require.Equal(t, Stuck, m.Judge(s, true))
	require.Equal(t, Holds, m.Judge(s, false))
	s.Answers[0] = answeredUnknown
	require.Equal(t, Holds, m.Judge(s, true))
}
