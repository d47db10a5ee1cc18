package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/internal/netfault"
)

// schedule is how a control loses A's lock, for certain.
type schedule struct {
	ttl    time.Duration // of A's lock
	before func(*world)  // before A acquires
	inject func(*world)  // while A is paused: B gets the lock sooner or later
	revert func(*world)  // when B has got it
}

// schedules are those that turn a control red, by name. Where nothing strikes,
// time does, or it is red by design.
var schedules = map[string]schedule{
	"no-lock":            {ttl: long},
	"etcd-mutex":         {ttl: 6 * time.Second, inject: partition, revert: revert},
	"redis-setnx":        {ttl: 300 * time.Millisecond},
	"redis-watchdog":     {ttl: 900 * time.Millisecond, inject: partition, revert: revert},
	"redis-replica":      {ttl: long, before: stopReplicating, inject: failOver},
	"redlock":            {ttl: long, before: loseTwo, inject: forgetOne},
	"postgres-advisory":  {ttl: long, inject: cutSession},
	"token-compare":      {ttl: 6 * time.Second, inject: partition, revert: revert},
	"lease-equality":     {ttl: 6 * time.Second, inject: partition, revert: revert},
	"client-clock":       {ttl: 3 * time.Second},
	"check-without-lock": {ttl: long},
	"group-matching":     {ttl: 6 * time.Second, inject: partition, revert: revert},
}

// partition cuts A off from the lock service: its lease, or its key, expires there.
func partition(w *world) { w.revert = w.link.Cut(netfault.ToServer) }
func revert(w *world)    { w.revert() }

func stopReplicating(w *world) { require.NoError(w, w.redis[1].StopReplicating(w.ctx)) }

func failOver(w *world) {
	require.NoError(w, w.redis[0].Kill())
	require.NoError(w, w.redis[1].Promote(w.ctx))
}

// loseTwo takes two nodes of five away, so that the lock is on three.
func loseTwo(w *world) {
	for _, r := range w.redis[3:] {
		require.NoError(w, r.Kill())
	}
}

// forgetOne has the two back, and one of the three come back empty.
func forgetOne(w *world) {
	require.NoError(w, w.redis[2].Kill())
	for _, r := range w.redis[2:] {
		require.NoError(w, r.Restart(w.ctx))
	}
}

// cutSession ends the session that has the lock.
func cutSession(w *world) {
	w.Helper()
	const end = `
		select count(*) filter (where pg_terminate_backend(pid, 60000)) from pg_locks
		where locktype = 'advisory' and granted and database = (select oid from pg_database where datname = current_database())`
	require.Equal(w, 1, w.number(end))
}

func (s schedule) do(step func(*world), w *world) {
	w.Helper()
	if step != nil {
		step(w)
	}
}

// repeating are the controls that lose no update, and apply an operation twice.
var repeating = []string{"group-rerun"}

// updating are the controls that lose updates.
func updating() (controls []control.Control) {
	for _, c := range control.All() {
		if !c.Liveness && !slices.Contains(repeating, c.Name) {
			controls = append(controls, c)
		}
	}
	return controls
}

// Each control sells one thing twice when A loses its lock between reading and
// writing, or where its flaw opens, and B is at work when A goes on.
func TestControls_AreRedUnderTheirFault(t *testing.T) {
	t.Parallel()
	for _, c := range updating() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			s, ok := schedules[c.Name]
			require.True(t, ok, "it has no schedule")
			w := newWorld(t, c)
			a, b := w.newA(s.ttl), w.newWorker("B")
			point := c.Point
			if point == "" {
				point = afterReading
			}
			s.do(s.before, w)
			first := a.begin(point)
			s.do(s.inject, w)
			second := b.begin(afterReading)
			s.do(s.revert, w)
			first.requireDone()
			second.requireDone()
			require.Equal(t, 2, w.sold())
			require.Equal(t, 1, w.taken(), "no update was lost")
		})
	}
}

// Without a fault no other process gets the lock beside the holder, and no update is lost.
func TestControls_AreGreenWithoutFault(t *testing.T) {
	t.Parallel()
	for _, c := range control.All() {
		if c.RedByDesign {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c)
			a, b := w.newA(long), w.newWorker("B")
			first := a.begin(afterReading)
			b.requireExcluded()
			require.NoError(t, first.finish())
			require.NoError(t, b.begin(afterReading).finish())
			require.NoError(t, a.begin(afterReading).finish())
			require.Equal(t, 3, w.sold())
			require.Equal(t, 3, w.taken())
		})
	}
}

// Only those that say so are red without a fault: they need none.
func TestControls_RedByDesignNeedNoFault(t *testing.T) {
	for _, c := range updating() {
		s := schedules[c.Name]
		require.Equal(t, c.RedByDesign, s.ttl == long && s.inject == nil, c.Name)
	}
}
