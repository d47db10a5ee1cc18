package fault_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/fault"
)

// A worker that is cut off gets nothing from its servers; whether they still get what it
// sends depends on the direction. Other links are not affected.
func TestPartition_SilencesWhatItNames(t *testing.T) {
	t.Parallel()
	for _, from := range []fault.Server{fault.ToEtcd, fault.ToPostgres, fault.ToBoth} {
		for _, way := range []fault.Way{fault.Requests, fault.Answers, fault.BothWays} {
			f := fault.Partition{From: from, Way: way}
			t.Run(f.String(), func(t *testing.T) {
				t.Parallel()
				l := newLinked(t)
				session := l.connect(t)
				require.NoError(t, l.askEtcd(patient(t)))
				revert := inject(t, f, l)
				arrives := way == fault.Answers

				if from == fault.ToPostgres {
					require.NoError(t, l.askEtcd(patient(t)))
				} else {
					_, err := l.client.Put(brief(t), l.locks+"during", "")
					require.Error(t, err)
					require.Equal(t, arrives, l.keyArrives(t, "during", arrives))
				}
				if from == fault.ToEtcd {
					require.NoError(t, l.askPostgres(patient(t)))
				} else {
					_, err := session.Exec(brief(t), "insert into t values ('during')")
					require.Error(t, err)
					require.Error(t, l.askPostgres(brief(t)), "a new session")
					require.Equal(t, arrives, l.rowArrives(t, "during", arrives))
				}

				revert()
				require.NoError(t, l.askEtcd(patient(t)))
				require.NoError(t, l.askPostgres(patient(t)))
			})
		}
	}
}

// keyArrives reports whether a key has come to etcd. It waits for one that should.
func (l linked) keyArrives(t testing.TB, key string, should bool) bool {
	return arrives(t, should, func() bool {
		got, err := l.observer.Get(patient(t), l.locks+key)
		require.NoError(t, err)
		return got.Count == 1
	})
}

// rowArrives is the same for a row in Postgres.
func (l linked) rowArrives(t testing.TB, key string, should bool) bool {
	return arrives(t, should, func() bool { return l.rows(t, key) == 1 })
}

func arrives(t testing.TB, should bool, there func() bool) bool {
	if should {
		require.Eventually(t, there, time.Minute, time.Millisecond)
	}
	return there()
}

// Everything is delayed by an hour, until the fault is reverted.
func TestDelay_DelaysEverything(t *testing.T) {
	t.Parallel()
	for _, to := range []fault.Server{fault.ToEtcd, fault.ToPostgres, fault.ToBoth} {
		t.Run(string(to), func(t *testing.T) {
			t.Parallel()
			l := newLinked(t)
			require.NoError(t, l.askEtcd(patient(t)))
			revert := inject(t, fault.Delay{To: to, Latency: time.Hour}, l)
			for server, ask := range map[fault.Server]func(context.Context) error{fault.ToEtcd: l.askEtcd, fault.ToPostgres: l.askPostgres} {
				if to == server || to == fault.ToBoth {
					require.Error(t, ask(brief(t)))
				} else {
					require.NoError(t, ask(patient(t)))
				}
			}
			revert()
			require.NoError(t, l.askEtcd(patient(t)))
			require.NoError(t, l.askPostgres(patient(t)))
		})
	}
}

// Present sessions carry nothing and report no error until they are reset; new ones work.
func TestHalfOpen_SilencesPresentConnectionsAlone(t *testing.T) {
	t.Parallel()
	l := newLinked(t)
	session := l.connect(t)
	revert := inject(t, fault.HalfOpen{To: fault.ToPostgres}, l)
	answered := make(chan error, 1)
	go func() {
		_, err := session.Exec(patient(t), "insert into t values ('half-open')")
		answered <- err
	}()
	require.NoError(t, l.askPostgres(patient(t)), "a new session")
	select {
	case err := <-answered:
		require.Fail(t, "an answer of a server that is gone", "%v", err)
	case <-brief(t).Done():
	}
	revert()
	err := <-answered
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, l.rows(t, "half-open"))
}

func TestReset_EndsPresentConnections(t *testing.T) {
	t.Parallel()
	l := newLinked(t)
	session := l.connect(t)
	answered := make(chan error, 1)
	go func() {
		_, err := session.Exec(patient(t), "select pg_sleep(3600)")
		answered <- err
	}()
	injectOnce(t, fault.Reset{To: fault.ToPostgres}, l)
	err := <-answered
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, l.askPostgres(patient(t)))
}

// Faults of one worker overlap, and none undoes another.
func TestLinks_FaultsHoldUntilTheyAreRevertedThemselves(t *testing.T) {
	t.Parallel()
	partition := fault.Partition{From: fault.ToBoth, Way: fault.BothWays}
	delay := fault.Delay{To: fault.ToBoth, Latency: time.Hour}
	halfOpen := fault.HalfOpen{To: fault.ToBoth}
	for _, c := range []struct{ holds, over fault.Fault }{
		{partition, partition}, {partition, delay}, {partition, halfOpen},
		{delay, delay}, {delay, partition}, {delay, halfOpen},
	} {
		t.Run(c.holds.String()+" and "+c.over.String(), func(t *testing.T) {
			t.Parallel()
			l := newLinked(t)
			require.NoError(t, l.askEtcd(patient(t)))
			revert := inject(t, c.holds, l)
			inject(t, c.over, l)()
			require.Error(t, l.askEtcd(brief(t)))
			require.Error(t, l.askPostgres(brief(t)))
			revert()
			require.NoError(t, l.askEtcd(patient(t)))
			require.NoError(t, l.askPostgres(patient(t)))
		})
	}
}

func TestHalfOpen_LastsWhileAPartitionEnds(t *testing.T) {
	t.Parallel()
	l := newLinked(t)
	session := l.connect(t)
	revert := inject(t, fault.HalfOpen{To: fault.ToPostgres}, l)
	inject(t, fault.Partition{From: fault.ToPostgres, Way: fault.BothWays}, l)()
	_, err := session.Exec(brief(t), "select 1")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	revert()
}
